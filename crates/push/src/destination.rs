//! Where profiles are sent to: `pyroscope=URL`, `parca=URL` or `otlp=URL`.
use client::http::Uri;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Pyroscope,
    Parca,
    /// A collector of OpenTelemetry.
    Otlp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    pub kind: Kind,
    /// Without a slash at its end.
    url: String,
}

const PROFILES: &str = "/v1development/profiles";

impl Destination {
    /// Returns a sentence if this is no destination.
    pub fn parse(text: &str) -> Result<Destination, String> {
        let bad = || {
            "not a destination (examples: pyroscope=http://pyroscope:4040, parca=http://parca:7070, otlp=https://collector:4318)"
                .to_owned()
        };
        let (kind, url) = text.split_once('=').ok_or_else(bad)?;
        let kind = match kind {
            "pyroscope" => Kind::Pyroscope,
            "parca" => Kind::Parca,
            "otlp" => Kind::Otlp,
            _ => return Err(bad()),
        };
        let uri: Uri = url.parse().map_err(|_| bad())?;
        let authority = uri.authority().ok_or_else(bad)?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.query().is_some() || uri.host() == Some("") {
            return Err(bad());
        }
        if authority.as_str().contains('@') {
            return Err(
                "a password does not belong in the address, where every user can read it: --push-headers FILE".into()
            );
        }
        Ok(Destination { kind, url: url.trim_end_matches('/').to_owned() })
    }

    /// The address for messages.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The address of a request. `path`: what follows the server's own address.
    pub(crate) fn address(&self, path: &str) -> String {
        let has_all = self.kind == Kind::Otlp && self.url.ends_with("/profiles");
        if has_all { self.url.clone() } else { format!("{}{path}", self.url) }
    }

    /// Names the destination in the spool: another recording may send what this one left.
    pub(crate) fn id(&self) -> u64 {
        let name = match self.kind {
            Kind::Pyroscope => "pyroscope",
            Kind::Parca => "parca",
            Kind::Otlp => "otlp",
        };
        xxhash_rust::xxh3::xxh3_64(format!("{name}={}", self.url).as_bytes())
    }
}

impl Kind {
    /// The path for requests that have no parameters.
    pub(crate) const fn path(self) -> &'static str {
        match self {
            Kind::Pyroscope => "/ingest",
            Kind::Parca => "/parca.profilestore.v1alpha1.ProfileStoreService/WriteRaw",
            Kind::Otlp => PROFILES,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_is_a_kind_and_an_address() {
        let of = |text: &str| Destination::parse(text).map(|to| to.address(to.kind.path()));
        assert_eq!(of("pyroscope=http://p:4040").as_deref(), Ok("http://p:4040/ingest"));
        assert_eq!(of("otlp=https://c:4318/").as_deref(), Ok("https://c:4318/v1development/profiles"));
        assert_eq!(of("otlp=http://c/x/v9/profiles").as_deref(), Ok("http://c/x/v9/profiles"));
        let parca = "http://p/pre/parca.profilestore.v1alpha1.ProfileStoreService/WriteRaw";
        assert_eq!(of("parca=http://p/pre").as_deref(), Ok(parca));
        for bad in ["", "http://x", "loki=http://x", "parca=x", "parca=ftp://x", "otlp=http://", "otlp=http://x/?a=b"] {
            assert!(of(bad).is_err_and(|sentence| sentence.starts_with("not a destination")), "{bad}");
        }
        assert!(of("parca=http://me:secret@x").is_err_and(|sentence| sentence.contains("--push-headers")));
    }
}
