"""The NATS store: records and journal in a JetStream stream that several processes share."""
