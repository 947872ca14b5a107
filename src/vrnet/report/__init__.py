"""What people look at: pages and figures of a registered pair."""
