"""Scenarios for the tests of the command line."""

WEB = "# A restart.\nplatform automatic\nscope web availability-set\nvm web-0 domain 0\nvm web-1 domain 1\n"
GOOD = f"{WEB}restart web-0 → E1 Scheduled not_before 10:15 by user, incarnation 2\nexpect E1 Completed within 20m\n"
DIFFERENT = f"{WEB}restart web-0 → E1 Started\nexpect E1 Completed within 1m\n"
WRONG = f"{WEB}schedule Rebot web-0\nwait\ncancel E1 → nothing\n"
