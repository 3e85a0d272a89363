//! A program with much inlining and many generic functions, on which symbolizers are compared.
use std::collections::{BTreeMap, HashMap};

#[derive(Debug, Clone, PartialEq)]
struct Item {
    name: String,
    price: f64,
}

trait Cost {
    fn cost(&self) -> f64;
}

impl Cost for Item {
    fn cost(&self) -> f64 {
        twice(self.price) + self.name.len() as f64
    }
}

fn twice(x: f64) -> f64 {
    x + x
}

fn total<T: Cost>(items: &[T]) -> f64 {
    items.iter().map(Cost::cost).sum()
}

fn main() {
    let text = "alpha1 beta2 gamma delta4 epsilon";
    let items: Vec<Item> =
        text.split(' ').map(|word| Item { name: word.to_owned(), price: word.len() as f64 }).collect();
    let mut index: BTreeMap<usize, Vec<&Item>> = BTreeMap::new();
    for item in &items {
        index.entry(item.name.len()).or_default().push(item);
    }
    let mut names: HashMap<String, usize> = HashMap::new();
    for (length, list) in &index {
        for item in list {
            *names.entry(format!("{}{length}", item.name)).or_default() += length;
        }
    }
    let mut sorted: Vec<_> = names.into_iter().collect();
    sorted.sort_by(|a, b| b.cmp(a));
    println!("{} {:?}", total(&items), sorted.first());
}
