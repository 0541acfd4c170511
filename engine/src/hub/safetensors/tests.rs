use std::fs;

use ::safetensors::SafeTensors as Reference;
use ::safetensors::tensor::{Dtype as ReferenceDtype, TensorView, serialize_to_file};

use super::write::{TensorSpec, Writer};
use super::*;
use crate::hub::made;

fn write(name: &str, bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    (folder, path)
}

#[test]
fn table_is_in_the_order_of_the_types() {
    for (i, (dtype, name, _)) in DTYPES.iter().enumerate() {
        assert_eq!((*dtype as usize, Dtype::from_name(name)), (i, Some(*dtype)));
    }
}

#[test]
fn reads_what_the_reference_writes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let data: Vec<u8> = (0..48).collect();
    let view = |dtype, shape: &[usize], range: Range<usize>| TensorView::new(dtype, shape.to_vec(), &data[range]).unwrap();
    let tensors = [
        ("a", view(ReferenceDtype::F32, &[2, 3], 0..24)),
        ("scalar", view(ReferenceDtype::BF16, &[], 24..26)),
        ("empty", view(ReferenceDtype::F16, &[0, 7], 0..0)),
        ("bytes", view(ReferenceDtype::U8, &[3], 5..8)),
    ];
    serialize_to_file(tensors, Some([("format".into(), "pt".into())].into()), &path).unwrap();

    let file = SafeTensors::open(&path).unwrap();
    assert_eq!(file.metadata()["format"], "pt");
    assert_eq!(file.tensors().map(|(n, _)| n).collect::<Vec<_>>(), ["a", "bytes", "empty", "scalar"]);
    assert_eq!((file.get("a").unwrap().dtype, &file.get("a").unwrap().shape[..]), (Dtype::F32, &[2, 3][..]));
    assert_eq!(file.bytes("a").unwrap(), &data[0..24]);
    assert_eq!(file.bytes("scalar").unwrap(), &data[24..26]);
    assert_eq!(file.bytes("bytes").unwrap(), &data[5..8]);
    assert!(file.bytes("empty").unwrap().is_empty());
    assert_eq!(file.bytes("b").unwrap_err().code(), "bad_weights");
}

#[test]
fn the_reference_reads_what_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let spec = |name: &str, dtype, shape: &[usize]| TensorSpec { name: name.into(), dtype, shape: shape.into() };
    let specs = [spec("z", Dtype::U32, &[1, 2]), spec("a \"quoted\" ü", Dtype::F16, &[3])];
    let mut writer = Writer::create(&path, &specs, &[("format", "mlx")]).unwrap();
    writer.tensor("z", &[1; 8]).unwrap();
    assert!(!path.exists());
    writer.tensor("a \"quoted\" ü", &[2; 6]).unwrap();
    writer.finish().unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);

    let bytes = fs::read(&path).unwrap();
    let reference = Reference::deserialize(&bytes).unwrap();
    assert_eq!(reference.tensor("z").unwrap().data(), [1; 8]);
    assert_eq!(reference.tensor("a \"quoted\" ü").unwrap().shape(), [3]);
    let (header_len, metadata) = Reference::read_metadata(&bytes).unwrap();
    assert_eq!(metadata.metadata().as_ref().unwrap()["format"], "mlx");
    assert_eq!((header_len + 8) % 8, 0);
    assert_eq!(SafeTensors::open(&path).unwrap().bytes("z").unwrap(), [1; 8]);
}

#[test]
fn an_unfinished_file_does_not_appear() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let specs = [TensorSpec { name: "a".into(), dtype: Dtype::U8, shape: vec![4] }];
    for bytes in [&[0_u8; 4][..], &[0; 5]] {
        let mut writer = Writer::create(&path, &specs, &[]).unwrap();
        assert_eq!(writer.tensor("a", bytes).is_ok(), bytes.len() == 4);
    }
    let mut writer = Writer::create(&path, &specs, &[]).unwrap();
    assert_eq!(writer.tensor("b", &[0; 4]).unwrap_err().code(), "internal");
    assert_eq!(Writer::create(&path, &specs, &[]).unwrap().finish().unwrap_err().code(), "internal");
    assert!(Writer::create(&path, &[specs[0].clone(), specs[0].clone()], &[]).is_err());
    drop(writer);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn refuses() {
    let cases = [
        (r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}"#, 8, "not valid"),
        (r#" {"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#, 8, "not a JSON object"),
        (r#"[]"#, 0, "not a JSON object"),
        (r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}x"#, 8, "not valid"),
        (r#"{"a":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}}"#, 1, "tensor a: unknown element type F4"),
        (r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}"#, 4, "takes 8 bytes and it has 4"),
        (r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}"#, 8, "outside"),
        (r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#, 7, "truncated"),
        (r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#, 9, "its tensors have 8 bytes and the file has 9"),
        (r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}"#, 12, "gap"),
        (r#"{"a":{"dtype":"U8","shape":[18446744073709551615,2],"data_offsets":[0,8]}}"#, 8, "too large"),
        (r#"{"a":{"dtype":"F64","shape":[4611686018427387904],"data_offsets":[0,8]}}"#, 8, "too large"),
        (r#"{"a":{"dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,8]}}"#, 8, "not valid"),
        (r#"{"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,8]}}"#, 8, "not valid"),
        (r#"{"a":{"dtype":"U8","shape":[1e18],"data_offsets":[0,8]}}"#, 8, "not valid"),
        (r#"{"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}}"#, 1, "17 dimensions"),
        (
            r#"{"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}"#,
            8,
            "two tensors",
        ),
        (
            r#"{"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}"#,
            8,
            "overlaps",
        ),
        (r#"{"__metadata__":{},"__metadata__":{}}"#, 0, "two __metadata__"),
        (r#"{"__metadata__":{"a":1}}"#, 0, "not valid"),
        (r#"{"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8],"more":1}}"#, 8, "not valid"),
        (r#"{"a":{"dtype":"U8","dtype":"I8","shape":[8],"data_offsets":[0,8]}}"#, 8, "not valid"),
        (r#"{"a":{"shape":[8],"data_offsets":[0,8]}}"#, 8, "not valid"),
    ];
    for (header, data, reason) in cases {
        let (_folder, path) = write("model.safetensors", &made::safetensors(header, data));
        let e = SafeTensors::open(&path).expect_err(header);
        assert_eq!(e.code(), "bad_file", "{header}");
        assert!(e.to_string().contains(reason), "{header}: {e}");
    }
}

#[test]
fn refuses_impossible_lengths() {
    for bytes in [&[][..], &[0; 7], &[0; 8], &u64::MAX.to_le_bytes(), &100_000_001_u64.to_le_bytes(), &9_u64.to_le_bytes()] {
        let (_folder, path) = write("model.safetensors", bytes);
        assert_eq!(SafeTensors::open(&path).unwrap_err().code(), "bad_file");
    }
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(SafeTensors::open(folder.path()).unwrap_err().code(), "bad_file");
    assert_eq!(SafeTensors::open(&folder.path().join("none")).unwrap_err().code(), "io");
}

#[test]
fn a_file_cut_after_it_was_opened_is_an_error() {
    let header = r#"{"a":{"dtype":"U8","shape":[8192],"data_offsets":[0,8192]}}"#;
    let (_folder, path) = write("model.safetensors", &made::safetensors(header, 8192));
    let file = SafeTensors::open(&path).unwrap();
    assert_eq!(file.bytes("a").unwrap().len(), 8192);
    File::options().write(true).open(&path).unwrap().set_len(100).unwrap();
    assert_eq!(file.bytes("a").unwrap_err().code(), "bad_file");
}
