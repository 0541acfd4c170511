//! Snapshots on this disk: finding them, reading them, making them from other formats. Nothing here knows MLX.
