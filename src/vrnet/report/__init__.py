"""What people look at: pages and figures of a pair and of a cine. Here are the names of their files."""

REPORT, OVERVIEW, THUMBNAIL = "report.html", "overview.png", "thumbnail.png"
CURVES, GIF = "strain.png", "cine.gif"
CINE_FILES = REPORT, CURVES, GIF
