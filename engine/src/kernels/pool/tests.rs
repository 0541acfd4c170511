use std::collections::HashSet;
use std::panic::catch_unwind;
use std::sync::Barrier;

use super::*;

fn sum(pool: &Pool, count: usize) -> usize {
    let total = AtomicUsize::new(0);
    pool.run(count, &|i| {
        total.fetch_add(i + 1, Ordering::Relaxed);
    });
    total.into_inner()
}

#[test]
fn every_index_runs_once() {
    for threads in [1, 2, 3, 8] {
        let pool = Pool::new(threads);
        assert_eq!(pool.threads(), threads);
        for count in (0..40).chain([1000]) {
            let runs: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
            pool.run(count, &|i| {
                runs[i].fetch_add(1, Ordering::Relaxed);
            });
            assert!(runs.iter().all(|n| n.load(Ordering::Relaxed) == 1), "{threads} threads, {count}");
        }
    }
}

#[test]
fn the_threads_work_together() {
    let pool = Pool::new(3);
    // Nobody gets on before three are here.
    let (meet, ids) = (Barrier::new(3), Mutex::new(HashSet::new()));
    pool.run(3, &|_| {
        meet.wait();
        ids.lock().unwrap().insert(thread::current().id());
    });
    let ids = ids.into_inner().unwrap();
    assert!(ids.len() == 3 && ids.contains(&thread::current().id()));
}

#[test]
fn many_short_loops() {
    let pool = Pool::new(2);
    for count in 0..20_000 {
        assert_eq!(sum(&pool, count % 5), [0, 1, 3, 6, 10][count % 5]);
    }
}

#[test]
fn loops_within_loops_and_beside_each_other() {
    let pool = Pool::new(2);
    let total = AtomicUsize::new(0);
    pool.run(10, &|_| {
        total.fetch_add(sum(&pool, 10), Ordering::Relaxed);
    });
    assert_eq!(total.into_inner(), 550);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..500).for_each(|_| assert_eq!(sum(&pool, 100), 5050)));
        }
    });
}

#[test]
fn a_panic_is_the_callers() {
    let pool = Pool::new(2);
    for _ in 0..3 {
        let ran = AtomicUsize::new(0);
        let work = |i: usize| {
            ran.fetch_add(1, Ordering::Relaxed);
            assert!(i != 7, "index {i}");
        };
        let panic = catch_unwind(AssertUnwindSafe(|| pool.run(20, &work))).unwrap_err();
        assert_eq!(panic.downcast_ref::<String>().unwrap(), "index 7");
        assert_eq!(ran.into_inner(), 20);
        assert_eq!(sum(&pool, 100), 5050);
    }
}

/// Processor time of the threads of this name.
#[cfg(target_os = "linux")]
fn busy_ticks(thread: &str) -> u64 {
    let mut ticks = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let Ok(stat) = std::fs::read_to_string(task.path().join("stat")) else { continue };
        let (name, rest) = stat.rsplit_once(')').unwrap();
        if name.ends_with(thread) {
            let fields: Vec<&str> = rest.split_whitespace().collect();
            ticks += fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        }
    }
    ticks
}

/// 100 ticks are a second.
#[test]
#[cfg(target_os = "linux")]
fn idle_threads_sleep_and_end_with_their_pool() {
    let shared = {
        // More than in any other test, so that the last one's name is its own.
        let pool = Pool::new(13);
        sum(&pool, 100);
        let weak = Arc::downgrade(&pool.shared);
        // Long pauses: nothing to be patient for.
        let before = busy_ticks("kernel-12");
        for _ in 0..20 {
            thread::sleep(Duration::from_millis(10));
            sum(&pool, 13);
        }
        assert!(busy_ticks("kernel-12") - before <= 5);
        weak
    };
    let start = Instant::now();
    while shared.upgrade().is_some() {
        assert!(start.elapsed() < Duration::from_secs(20), "the helpers live on");
        thread::yield_now();
    }
}

#[test]
fn patience_adapts() {
    let mut patience = PATIENCE;
    // Unparked long after it was called: not worth looking.
    for _ in 0..8 {
        let come = Arc::new(AtomicBool::new(false));
        let (to, waiting) = (come.clone(), thread::current());
        let other = thread::spawn(move || {
            thread::sleep(Duration::from_millis(3));
            to.store(true, Ordering::Release);
            waiting.unpark();
        });
        wait_for(|| come.load(Ordering::Acquire), &mut patience);
        other.join().unwrap();
    }
    assert!(patience < LEAST, "{patience:?}");
}
