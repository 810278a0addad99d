//! Starts a program under QEMU and turns what the plugin sends into a trace.
