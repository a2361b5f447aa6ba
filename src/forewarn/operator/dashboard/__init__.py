"""The dashboard: HTML pages below `/ui`, for browsers. They use the same commands and permissions as the API."""
