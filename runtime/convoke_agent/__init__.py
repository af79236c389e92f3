"""The agent that runs where no other image is named: it answers probes and describes itself, and thinks nothing."""
