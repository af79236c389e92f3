//! (pure) Medians, quantiles and ratios, and the numbers that the kernel and the API server tell as text.

/// The value below which a share `q` (0 to 1) of the samples lies: the nearest rank, so always a sample that was
/// seen; for the middle of an even number of samples, the mean of the two. `None` without samples.
pub fn quantile(samples: &[f64], q: f64) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    if n == 0 {
        return None;
    }
    if (q - 0.5).abs() < f64::EPSILON && n.is_multiple_of(2) {
        return Some(f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]));
    }
    // Both are small: a rank of at most n.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let rank = (q * n as f64).ceil() as usize;
    Some(sorted[rank.clamp(1, n) - 1])
}

/// The median of the ratios of values to limits that were measured side by side: the machine's mood, which changes
/// between runs, cancels out. `None` when there is no pair with a limit above zero.
pub fn ratio(values: &[f64], limits: &[f64]) -> Option<f64> {
    let pairs = values.iter().zip(limits).filter(|(_, limit)| **limit > 0.0);
    quantile(&pairs.map(|(value, limit)| value / limit).collect::<Vec<_>>(), 0.5)
}

/// `VmHWM` of `/proc/<pid>/status` in MiB: the most memory that the process ever had resident.
pub fn peak_mib(status: &str) -> Option<f64> {
    status_mib(status, "VmHWM:")
}

/// `VmRSS` of `/proc/<pid>/status` in MiB: the memory that the process has resident now.
pub fn resident_mib(status: &str) -> Option<f64> {
    status_mib(status, "VmRSS:")
}

fn status_mib(status: &str, name: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u32 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(f64::from(kib) / 1024.0)
}

/// MiB that the operator may have resident with all controllers and that many agents (P6).
pub fn most_mib(agents: usize) -> Option<f64> {
    match agents {
        ..=1000 => Some(50.0),
        1001..=5000 => Some(90.0),
        5001..=10_000 => Some(150.0),
        _ => None,
    }
}

/// MiB that it may have resident with that many GitSyncs (P14): without controllers for up to 1,000 of them; with all
/// of them what the agents may take, and 50 KiB a GitSync.
pub fn most_mib_with_syncs(syncs: usize, agents: usize, controllers: bool) -> Option<f64> {
    // Thousands at most.
    #[allow(clippy::cast_precision_loss)]
    let for_syncs = syncs as f64 * 50.0 / 1024.0;
    if controllers {
        most_mib(agents).map(|most| most + for_syncs)
    } else {
        (syncs <= 1000).then_some(120.0)
    }
}

/// CPU time of one thread in nanoseconds: the first number of `/proc/<pid>/task/<tid>/schedstat`.
pub fn thread_nanos(schedstat: &str) -> Option<u64> {
    schedstat.split(' ').next()?.trim().parse().ok()
}

/// CPU time of a whole process, ended threads included, in clock ticks: `utime` + `stime` of `/proc/<pid>/stat`.
pub fn process_ticks(stat: &str) -> Option<u64> {
    // The name of the program may hold anything; the fields after it do not.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

/// Writes that the API server has answered since its start, from its metrics. Left out is what goes on for ever in
/// a cluster at rest (leases), and what only has the shape of a write (reviews).
pub fn writes(metrics: &str) -> f64 {
    metrics.lines().filter_map(write_count).sum()
}

/// Writes that the API server works on at this moment (the most of the last second). Creates of Services can take
/// many seconds when there are many.
pub fn writes_in_flight(metrics: &str) -> f64 {
    let name = "apiserver_current_inflight_requests{request_kind=\"mutating\"} ";
    let line = metrics.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(0.0)
}

fn write_count(line: &str) -> Option<f64> {
    let (labels, count) = line.strip_prefix("apiserver_request_total{")?.rsplit_once("} ")?;
    let reads = ["GET", "LIST", "WATCH", "CONNECT"];
    let resource = label(labels, "resource");
    if reads.contains(&label(labels, "verb"))
        || resource == "leases"
        || resource.ends_with("reviews")
    {
        return None;
    }
    count.trim().parse().ok()
}

/// The value of `name="…"`, or nothing.
fn label<'a>(labels: &'a str, name: &str) -> &'a str {
    let mut parts = labels.split("\",").filter_map(|part| part.split_once("=\""));
    parts.find(|(key, _)| *key == name).map_or("", |(_, value)| value.trim_end_matches('"'))
}
