# The devices of qemu-system-x86_64: a PC with a serial line and virtio-blk, what that needs, and the port by which a small
# kernel ends its machine (isa-debug-exit).
CONFIG_I440FX=y
CONFIG_VIRTIO_PCI=y
CONFIG_VIRTIO_BLK=y
CONFIG_ISA_DEBUG=y
