"""The shapes of the API's answers, for its document: handlers make the data, tests compare them."""
