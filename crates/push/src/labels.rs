//! What is known about the program, as each server names it.
use export::protobuf::Message;

/// Labels of all profiles of a recording. Must hold: every name is one that Prometheus allows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(Vec<(String, String)>);

/// The names that OpenTelemetry has for our labels.
const ATTRIBUTES: [(&str, &str); 4] =
    [("service", "service.name"), ("version", "service.version"), ("host", "host.name"), ("pod", "k8s.pod.name")];

impl Labels {
    /// Reads `NAME=VALUE`. Returns a sentence if it is no label.
    pub fn parse(text: &str) -> Result<(String, String), String> {
        let (name, value) = text.split_once('=').ok_or("not a label (examples: version=1.2, env=production)")?;
        let mut letters = name.chars();
        let is_name = letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
            && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
            && !name.starts_with("__");
        match (is_name, value.is_empty()) {
            (true, false) => Ok((name.to_owned(), value.to_owned())),
            (true, true) => Err("a label without a value".into()),
            (false, _) => Err("a label's name has letters, digits and _, and does not begin with a digit or __".into()),
        }
    }

    /// Adds a label. The first one of a name holds.
    pub fn add(&mut self, name: &str, value: &str) {
        if !value.is_empty() && self.get(name).is_none() {
            self.0.push((name.to_owned(), value.to_owned()));
        }
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn service(&self) -> &str {
        self.get("service").unwrap_or("unknown")
    }

    fn others(&self) -> impl Iterator<Item = &(String, String)> {
        self.0.iter().filter(|(name, _)| name != "service")
    }

    /// `service{name=value,...}`. Pyroscope has no escapes, so letters that would end a value are replaced.
    pub(crate) fn of_pyroscope(&self) -> String {
        let clean = |text: &str| text.replace(['{', '}', ',', '=', '"'], "_");
        let labels: Vec<String> = self.others().map(|(name, value)| format!("{name}={}", clean(value))).collect();
        format!("{}{{{}}}", clean(self.service()), labels.join(","))
    }

    /// A label set of Parca's. `__name__` is the kind of profile.
    pub(crate) fn of_parca(&self) -> Message {
        let mut set = Message::default();
        let own = [("__name__", "memory"), ("job", self.service())];
        let others =
            self.others().map(|(name, value)| (name.as_str(), value.as_str())).filter(|(name, _)| *name != "job");
        for (name, value) in own.into_iter().chain(others) {
            let mut label = Message::default();
            label.bytes(1, name.as_bytes()).bytes(2, value.as_bytes());
            set.message(1, &label);
        }
        set
    }

    /// The attributes of a resource.
    pub fn of_otlp(&self) -> Vec<(String, String)> {
        let name = |name: &str| {
            let known = ATTRIBUTES.iter().find(|(own, _)| *own == name);
            known.map_or_else(|| name.to_owned(), |(_, theirs)| (*theirs).to_owned())
        };
        self.0.iter().map(|(own, value)| (name(own), value.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_have_the_names_of_each_server() {
        let mut labels = Labels::default();
        for (name, value) in [("service", "shop"), ("env", "a,b}"), ("host", "h1"), ("service", "late"), ("pod", "")] {
            labels.add(name, value);
        }
        assert_eq!(labels.of_pyroscope(), "shop{env=a_b_,host=h1}");
        let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        assert_eq!(labels.of_otlp(), pairs(&[("service.name", "shop"), ("env", "a,b}"), ("host.name", "h1")]));
        let parca = labels.of_parca();
        for text in ["__name__", "memory", "job", "shop", "env", "a,b}"] {
            assert!(parca.as_bytes().windows(text.len()).any(|part| part == text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn names_that_servers_refuse_are_refused() {
        assert_eq!(Labels::parse("env=x=y"), Ok(("env".into(), "x=y".into())));
        for bad in ["env", "env=", "=x", "1a=x", "a-b=x", "__name__=x", "ä=x"] {
            assert!(Labels::parse(bad).is_err(), "{bad}");
        }
    }
}
