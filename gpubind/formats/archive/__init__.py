"""Archives, images and bundles: `parse_bundle`, `parse_oci_index`, `parse_sif_header`, `parse_superblock`."""
