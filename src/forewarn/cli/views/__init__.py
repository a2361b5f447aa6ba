"""Tables, texts and progress for people."""
