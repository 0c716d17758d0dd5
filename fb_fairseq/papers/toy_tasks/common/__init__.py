"""What tasks are made of (task.py), and the command that writes their data (command.py)."""
