"""What fairseq's optimizers lack."""
