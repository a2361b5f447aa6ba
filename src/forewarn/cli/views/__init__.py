"""Tables, texts and progress bars."""
