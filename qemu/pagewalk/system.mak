# The devices of qemu-system-x86_64: a PC with a serial line and virtio-blk, and what that needs.
CONFIG_I440FX=y
CONFIG_VIRTIO_PCI=y
CONFIG_VIRTIO_BLK=y
