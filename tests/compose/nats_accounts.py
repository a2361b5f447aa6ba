"""The NATS configuration with one account for control nodes and one for hosts, as the documentation has it."""

CONFIG = """
accounts {
  CONTROL {
    jetstream: enabled
    users: [ { user: control, password: control } ]
    exports: [
      { service: "C.main.>", accounts: [HOSTS] }
      { service: "$JS.API.CONSUMER.CREATE.FOREWARN-main.*", accounts: [HOSTS] }
      { service: "$JS.API.CONSUMER.DELETE.FOREWARN-main.*", accounts: [HOSTS] }
      { stream: "H.main.>", accounts: [HOSTS] }
    ]
  }
  HOSTS {
    users: [ { user: "hv-0", password: host, permissions: {
      publish: [ "C.main.hv-0.>",
                 "forewarn.main.CONSUMER.CREATE.FOREWARN-main.hv-0-follow",
                 "forewarn.main.CONSUMER.DELETE.FOREWARN-main.hv-0-follow" ]
      subscribe: [ "_INBOX.hv-0.>", "H.main.hv-0.>" ]
    } } ]
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
