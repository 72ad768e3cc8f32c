"""What runs came to: means with their intervals, tests, libraries, skills, and the paper's numbers beside."""
