"""The library for software inside a virtual machine, on Azure too."""
