"""The NATS configuration with one account for control nodes and one for hosts, as the documentation has it."""

from collections.abc import Sequence

CONTROL_PASSWORD, HOST_PASSWORD = "control", "host"

API_PREFIX = "forewarn.main"
"""How a host reaches JetStream: its account imports the subjects under this name."""

ACCOUNTS = """
accounts {
  CONTROL {
    jetstream: enabled
    users: [ { user: control, password: %(control_password)s } ]
    exports: [
      { service: "C.main.>", accounts: [HOSTS] }
      { service: "$JS.API.CONSUMER.CREATE.FOREWARN-main.*", accounts: [HOSTS] }
      { service: "$JS.API.CONSUMER.DELETE.FOREWARN-main.*", accounts: [HOSTS] }
      { stream: "H.main.>", accounts: [HOSTS] }
    ]
  }
  HOSTS {
    users: [ %(users)s ]
    imports: [
      { service: { account: CONTROL, subject: "C.main.>" } }
      { service: { account: CONTROL, subject: "$JS.API.CONSUMER.CREATE.FOREWARN-main.*" },
        to: "forewarn.main.CONSUMER.CREATE.FOREWARN-main.*" }
      { service: { account: CONTROL, subject: "$JS.API.CONSUMER.DELETE.FOREWARN-main.*" },
        to: "forewarn.main.CONSUMER.DELETE.FOREWARN-main.*" }
      { stream: { account: CONTROL, subject: "H.main.>" } }
    ]
  }
}
"""

HOST_USER = """{ user: "%(host)s", password: %(password)s, permissions: {
      publish: [ "C.main.%(host)s.>",
                 "forewarn.main.CONSUMER.CREATE.FOREWARN-main.%(host)s-follow",
                 "forewarn.main.CONSUMER.DELETE.FOREWARN-main.%(host)s-follow" ]
      subscribe: [ "_INBOX.%(host)s.>", "H.main.%(host)s.>" ]
    } }"""


def accounts_config(hosts: Sequence[str] = ("hv-0",)) -> str:
    """Return the accounts of the cell `main`, with a user for each host."""
    users = "\n      ".join(HOST_USER % {"host": host, "password": HOST_PASSWORD} for host in hosts)
    return ACCOUNTS % {"users": users, "control_password": CONTROL_PASSWORD}
