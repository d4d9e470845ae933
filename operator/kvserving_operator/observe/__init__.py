"""What is: the reads of one pass, and what they say about each role. Decides nothing."""
