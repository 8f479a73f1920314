"""What happens in `trainer.train()`, from the first file in the workdir to the last."""
