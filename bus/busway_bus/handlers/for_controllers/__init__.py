"""The APIs on a controller's listeners, one module each; `registry` lists them."""
