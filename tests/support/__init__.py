"""What tests share: a whole gateway on real sockets. Nothing here replaces a part of the product."""
