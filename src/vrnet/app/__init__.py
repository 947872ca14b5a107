"""What a command does: files in, files out, and what a person sees in the terminal."""
