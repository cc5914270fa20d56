"""Tables, figures and pages: everything a reader sees. Text from models is inert in all of them."""
