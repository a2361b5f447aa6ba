"""The workflow of one event in this VM as a state machine: state, reducer, planner, deadlines, approval, store."""
