//! Reading what a user names, never without end; writing what a user names, never half.

use std::fs::{self, File};
use std::io::{self, BufRead, BufWriter, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use rmlx_engine::error::Error;

use crate::failure::Result;

/// Bytes of a text that is read whole: more than any context holds.
pub const MOST: u64 = 64 << 20;

/// A whole text. `path` is what a complaint names.
pub fn text(from: impl Read, path: impl AsRef<Path>) -> Result<String> {
    let mut bytes = Vec::new();
    from.take(MOST + 1).read_to_end(&mut bytes).map_err(|e| Error::io(&path, e))?;
    checked(bytes, path)
}

/// A line with its end; empty where there is none left.
pub fn line(from: impl BufRead, path: impl AsRef<Path>) -> Result<String> {
    let mut bytes = Vec::new();
    from.take(MOST + 1).read_until(b'\n', &mut bytes).map_err(|e| Error::io(&path, e))?;
    checked(bytes, path)
}

fn checked(bytes: Vec<u8>, path: impl AsRef<Path>) -> Result<String> {
    if bytes.len() as u64 > MOST {
        return Err(Error::bad_file(path, format!("more than {MOST} bytes")).into());
    }
    String::from_utf8(bytes).map_err(|_| Error::bad_file(path, "not UTF-8").into())
}

/// Writes a file that appears under its name only when it is whole: what was there stays until then. A link is followed; what is no
/// file, a device or a pipe, is written to and never replaced.
pub fn write(path: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    put(path, fill).map_err(|e| Error::io(path, e).into())
}

/// What [`write`] would complain about at once, for those who work long before they write.
pub fn check_writable(path: &Path) -> Result<()> {
    let checked = match fs::metadata(path) {
        Ok(meta) if meta.is_dir() => Err(ErrorKind::IsADirectory.into()),
        Ok(_) => Ok(()),
        Err(e) if e.kind() == ErrorKind::NotFound => match fs::metadata(folder(path)) {
            Ok(meta) if meta.is_dir() => Ok(()),
            Ok(_) => Err(ErrorKind::NotADirectory.into()),
            Err(e) => Err(e),
        },
        Err(e) => Err(e),
    };
    checked.map_err(|e: io::Error| Error::io(path, e).into())
}

fn put(path: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let path = match fs::metadata(path) {
        Ok(meta) if meta.is_dir() => return Err(ErrorKind::IsADirectory.into()),
        Ok(meta) if !meta.is_file() => return filled(File::options().write(true).open(path)?, fill).map(drop),
        // The file itself, so that a link to it stays one.
        Ok(_) => fs::canonicalize(path)?,
        Err(e) if e.kind() == ErrorKind::NotFound => path.to_path_buf(),
        Err(e) => return Err(e),
    };
    let name = path.file_name().ok_or(ErrorKind::InvalidFilename)?;
    let half = folder(&path).join(format!(".{}.partial", name.to_string_lossy()));
    let done = File::create(&half).and_then(|file| filled(file, fill)?.sync_all()).and_then(|()| fs::rename(&half, &path));
    if done.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&half);
    }
    done
}

fn filled(file: File, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<File> {
    let mut file = BufWriter::new(file);
    fill(&mut file)?;
    Ok(file.into_inner()?)
}

fn folder(path: &Path) -> PathBuf {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")).into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileTypeExt, symlink};

    use super::*;

    #[test]
    fn nothing_is_read_without_end() {
        for reason in [
            text(io::repeat(b'0'), "zeros").unwrap_err(),
            line(io::BufReader::new(io::repeat(b'0')), "zeros").unwrap_err(),
            text(&b"\xff"[..], "bytes").unwrap_err(),
        ] {
            assert!(format!("{reason:?}").contains("bad_file"), "{reason:?}");
        }
        let mut lines = &b"one\ntwo"[..];
        assert_eq!((line(&mut lines, "").unwrap(), line(&mut lines, "").unwrap()), ("one\n".into(), "two".into()));
        assert_eq!(line(&mut lines, "").unwrap(), "");
    }

    #[test]
    fn what_is_there_stays_until_the_new_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "old").unwrap();
        symlink("file", at("link")).unwrap();
        let broken = write(&at("link"), |out| {
            out.write_all(b"ne")?;
            Err(ErrorKind::StorageFull.into())
        });
        assert!(broken.is_err());
        assert_eq!(fs::read_to_string(at("file")).unwrap(), "old");
        write(&at("link"), |out| out.write_all(b"new")).unwrap();
        assert_eq!(fs::read_to_string(at("file")).unwrap(), "new");
        assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
        write(&at("fresh"), |out| out.write_all(b"new")).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "nothing half stays");
        for wrong in [folder.path().to_path_buf(), at("no/folder"), at("file/x")] {
            assert!(check_writable(&wrong).is_err() && write(&wrong, |_| Ok(())).is_err(), "{wrong:?}");
        }
        for right in [at("file"), at("link"), at("other")] {
            check_writable(&right).unwrap();
        }
    }

    #[test]
    fn what_is_no_file_is_never_replaced() {
        let null = Path::new("/dev/null");
        // Through a link in a folder of ours: were it replaced after all, it would be the link.
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("null");
        symlink(null, &link).unwrap();
        write(&link, |out| out.write_all(b"gone")).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(fs::metadata(null).unwrap().file_type().is_char_device());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
