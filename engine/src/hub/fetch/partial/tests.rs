use proptest::prelude::*;
use tempfile::tempdir;

use super::super::super::cache::Cache;
use super::super::super::remote::Hash;
use super::*;

proptest! {
    /// Against a plain list of bytes.
    #[test]
    fn ranges_are_sets_of_bytes(adds in prop::collection::vec((0_u64..64, 0_u64..20), 0..20), most in 1_u64..30) {
        let mut ranges = Ranges::default();
        let mut bytes = [false; 64];
        for (start, length) in adds {
            let end = (start + length).min(64);
            ranges.add(start..end);
            (start..end).for_each(|i| bytes[i as usize] = true);
        }
        prop_assert_eq!(ranges.bytes(), bytes.iter().filter(|b| **b).count() as u64);
        prop_assert_eq!(ranges.prefix(), bytes.iter().take_while(|b| **b).count() as u64);
        prop_assert!(ranges.0.windows(2).all(|w| w[0].end < w[1].start));
        let missing = ranges.missing(64, most);
        prop_assert!(missing.iter().all(|m| !m.is_empty() && m.end - m.start <= most && (m.end % most == 0 || m.end == 64 || bytes[m.end as usize])));
        let mut all = ranges.clone();
        let mut sum = ranges.bytes();
        for range in missing {
            sum += range.end - range.start;
            all.add(range);
        }
        prop_assert_eq!((sum, all.prefix(), all.0.len()), (64, 64, 1));
    }
}

#[test]
fn only_what_was_saved_is_claimed() {
    let root = tempdir().unwrap();
    let repo = Cache { root: root.path().into() }.repo("a/b").unwrap();
    let file = RemoteFile { name: "x".into(), bytes: 100, hash: Hash::parse(&"0".repeat(64)).unwrap() };
    let partial = Partial::open(&repo, &file, 50).unwrap();
    assert_eq!(partial.write(&[1; 10], 0).unwrap(), 10);
    assert_eq!(partial.write(&[1; 10], 20).unwrap(), 10, "behind a gap");
    assert_eq!(have(&repo, &file), 0, "not safe yet");
    partial.save().unwrap();
    assert_eq!(have(&repo, &file), 20);
    partial.write(&[1; 10], 10).unwrap();
    drop(partial);
    // Without a last save, as after a crash; and a line that is torn.
    let mut journal = File::options().append(true).open(repo.parts(&file.hash)).unwrap();
    journal.write_all(b"30 1").unwrap();
    let partial = Partial::open(&repo, &file, 50).unwrap();
    assert_eq!(partial.done().missing(100, 64), [10..20, 30..64, 64..100]);
    partial.write(&[1; 10], 10).unwrap();
    partial.save().unwrap();
    assert_eq!(have(&repo, &file), 30, "the torn line spoils none after it");
    assert_eq!(partial.keep_prefix(), 0);
    // A file that lost its end has lost what the journal says of it.
    File::options().write(true).open(repo.partial(&file.hash)).unwrap().set_len(25).unwrap();
    assert_eq!(have(&repo, &file), 20);
    partial.discard().unwrap();
    assert_eq!((have(&repo, &file), names(&repo)), (0, 0));
}

/// Anybody may have written it, and it is read again and again while another process fetches.
#[test]
fn a_hostile_journal_costs_little() {
    let root = tempdir().unwrap();
    let repo = Cache { root: root.path().into() }.repo("a/b").unwrap();
    let file = RemoteFile { name: "x".into(), bytes: 1 << 40, hash: Hash::parse(&"0".repeat(64)).unwrap() };
    drop(Partial::open(&repo, &file, 50).unwrap());
    File::options().write(true).open(repo.partial(&file.hash)).unwrap().set_len(1 << 40).unwrap();
    let write = |ranges: &mut dyn Iterator<Item = u64>| {
        let lines: String = ranges.map(|start| line(&(start..start + 1))).collect();
        fs::write(repo.parts(&file.hash), format!("{HEAD} {}\n{lines}", file.bytes)).unwrap();
    };
    // Each range before the one above it, and none touches another.
    write(&mut (0..500_000).rev().map(|i| 2 * i));
    let begin = std::time::Instant::now();
    assert_eq!(have(&repo, &file), MOST_RANGES as u64, "what is claimed after that is fetched again");
    assert!(begin.elapsed() < std::time::Duration::from_secs(5), "{:?}", begin.elapsed());
    // The control: as many lines of an honest download.
    write(&mut (0..500_000));
    assert_eq!(have(&repo, &file), 500_000);
    fs::write(repo.parts(&file.hash), format!("{HEAD} {}\n{}", file.bytes, "1".repeat(1 << 20))).unwrap();
    assert_eq!(have(&repo, &file), 0);
}

fn names(repo: &Repo) -> usize {
    fs::read_dir(repo.folder.join("blobs")).unwrap().count()
}
