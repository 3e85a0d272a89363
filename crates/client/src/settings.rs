//! What the machine says about names: `/etc/hosts` and `/etc/resolv.conf`.
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

const DNS_PORT: u16 = 53;
/// As glibc: more servers, and longer times, are not used.
const MOST_SERVERS: usize = 3;
const LONGEST_SECONDS: u64 = 30;
const MOST_ATTEMPTS: u32 = 5;

/// The addresses that `/etc/hosts` has for a name.
pub(crate) fn in_hosts(text: &str, name: &str) -> Vec<IpAddr> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let address = |line: &str| {
        let mut words = line.split_whitespace();
        let address = words.next()?.parse().ok()?;
        words.any(|word| word.eq_ignore_ascii_case(name)).then_some(address)
    };
    lines.filter_map(address).collect()
}

/// What `/etc/resolv.conf` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) servers: Vec<SocketAddr>,
    pub(crate) search: Vec<String>,
    /// A name with fewer dots than this is tried with the search list first.
    pub(crate) dots: usize,
    pub(crate) timeout: Duration,
    pub(crate) attempts: u32,
}

impl Settings {
    pub(crate) fn parse(text: &str) -> Settings {
        let mut settings =
            Settings { servers: Vec::new(), search: Vec::new(), dots: 1, timeout: Duration::from_secs(5), attempts: 2 };
        for line in text.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => {
                    let address: Option<IpAddr> = words.next().and_then(|word| word.parse().ok());
                    settings.servers.extend(address.map(|address| SocketAddr::new(address, DNS_PORT)));
                }
                // The last one of these lines holds.
                Some("search" | "domain") => settings.search = words.map(str::to_owned).collect(),
                Some("options") => words.for_each(|word| settings.option(word)),
                _ => (),
            }
        }
        settings.servers.truncate(MOST_SERVERS);
        if settings.servers.is_empty() {
            settings.servers.push(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), DNS_PORT));
        }
        settings
    }

    fn option(&mut self, word: &str) {
        let Some((name, value)) = word.split_once(':') else { return };
        let Ok(value) = value.parse::<u64>() else { return };
        match name {
            "ndots" => self.dots = value.min(15) as usize,
            "timeout" => self.timeout = Duration::from_secs(value.clamp(1, LONGEST_SECONDS)),
            "attempts" => self.attempts = (value as u32).clamp(1, MOST_ATTEMPTS),
            _ => (),
        }
    }

    /// The names to ask for, in their order. A name that ends with a dot is complete.
    pub(crate) fn candidates(&self, name: &str) -> Vec<String> {
        if let Some(complete) = name.strip_suffix('.') {
            return vec![complete.to_owned()];
        }
        let mut names: Vec<String> =
            self.search.iter().map(|domain| format!("{name}.{}", domain.trim_matches('.'))).collect();
        let is_complete = name.matches('.').count() >= self.dots;
        names.insert(if is_complete { 0 } else { names.len() }, name.to_owned());
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_has_search_domains() {
        let text =
            "nameserver 10.96.0.10\nsearch shop.svc.cluster.local svc.cluster.local\noptions ndots:5 timeout:2\n";
        let settings = Settings::parse(text);
        assert_eq!(settings.servers, ["10.96.0.10:53".parse().unwrap()]);
        assert_eq!((settings.dots, settings.timeout, settings.attempts), (5, Duration::from_secs(2), 2));
        assert_eq!(
            settings.candidates("pyroscope.monitoring"),
            [
                "pyroscope.monitoring.shop.svc.cluster.local",
                "pyroscope.monitoring.svc.cluster.local",
                "pyroscope.monitoring"
            ]
        );
        assert_eq!(settings.candidates("pyroscope.example.org."), ["pyroscope.example.org"]);
    }

    #[test]
    fn without_a_file_this_machine_is_asked() {
        let settings = Settings::parse("# nothing\noptions ndots:x attempts:99\nnameserver none\n");
        assert_eq!(settings.servers, ["127.0.0.1:53".parse().unwrap()]);
        assert_eq!((settings.dots, settings.attempts), (1, 5));
        assert_eq!(settings.candidates("a.b"), ["a.b"]);
        let with_domain = Settings::parse("domain example.org.\n");
        assert_eq!(with_domain.candidates("a.b"), ["a.b", "a.b.example.org"]);
        assert_eq!(with_domain.candidates("a"), ["a.example.org", "a"]);
    }

    #[test]
    fn hosts_have_aliases_and_comments() {
        let text =
            "127.0.0.1 localhost\n# 1.1.1.1 off\n10.0.0.7\tparca.example parca # 9.9.9.9 parca\nfe80::1 PARCA\nx y\n";
        let of = |name| in_hosts(text, name).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(of("parca"), ["10.0.0.7", "fe80::1"]);
        assert_eq!(of("off"), Vec::<String>::new());
        assert_eq!(of("y"), Vec::<String>::new());
    }
}
