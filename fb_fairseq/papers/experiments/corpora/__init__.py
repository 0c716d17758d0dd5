"""Programs that prepare the data of some experiments."""
