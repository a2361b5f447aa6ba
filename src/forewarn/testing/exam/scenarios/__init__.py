"""Scenarios that only the exam has: endpoint faults and unusual environments."""
