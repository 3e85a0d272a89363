//! From ids of the target's stack tree to stack ids of the trace.
//!
//! Given: a tree id out of a ring. Gives back: the trace's id, new nodes encoded on the way, parents first. What must
//! hold: each node is written once; a tree that no honest target makes gives stack 0 and is counted.
use channel::{FrameKey, StackId, TreeError};
use format::{Frame, RawBlock, StackEncoder};

const PAGE: usize = 4096;

#[derive(Debug, Default)]
pub struct Stacks {
    encoder: StackEncoder,
    /// Trace id by tree id, 0 = not written yet; pages, for ids in use lie in clusters.
    ids: Vec<Option<Box<[u32; PAGE]>>>,
    chain: Vec<(StackId, FrameKey)>,
    corrupt: u64,
}

impl Stacks {
    /// `node` tells a tree id's parent and frame (`channel::Tree::node`).
    pub fn id(&mut self, tree_id: StackId, node: impl Fn(StackId) -> Result<(StackId, FrameKey), TreeError>) -> u32 {
        self.chain.clear();
        let mut at = tree_id;
        let mut parent = 0;
        while at != 0 {
            parent = self.known(at);
            if parent != 0 {
                break;
            }
            match node(at) {
                // Checked here too: an id that does not shrink would never end.
                Ok((next, key)) if next < at => {
                    self.chain.push((at, key));
                    at = next;
                }
                _ => {
                    self.corrupt += 1;
                    return 0;
                }
            }
        }
        while let Some((id, key)) = self.chain.pop() {
            parent = self.encoder.push(parent, Frame(key.0));
            self.remember(id, parent);
        }
        parent
    }

    fn known(&self, id: StackId) -> u32 {
        let page = self.ids.get(id as usize / PAGE).and_then(Option::as_ref);
        page.map_or(0, |page| page[id as usize % PAGE])
    }

    fn remember(&mut self, id: StackId, trace_id: u32) {
        let index = id as usize / PAGE;
        if self.ids.len() <= index {
            self.ids.resize_with(index + 1, || None);
        }
        if let Some(page) = self.ids.get_mut(index) {
            page.get_or_insert_with(|| Box::new([0; PAGE]))[id as usize % PAGE] = trace_id;
        }
    }

    /// Stacks that could not be read.
    pub const fn corrupt(&self) -> u64 {
        self.corrupt
    }

    /// Nodes since the last call.
    pub fn take(&mut self) -> Option<RawBlock> {
        (!self.encoder.is_empty()).then(|| self.encoder.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::{Block, StackNode};

    #[test]
    fn parents_come_first_and_once() {
        // Tree: 1 <- 5 <- 9000, 1 <- 7.
        let node = |id| match id {
            1 => Ok((0, FrameKey(10))),
            5 => Ok((1, FrameKey(50))),
            7 => Ok((1, FrameKey(70))),
            9000 => Ok((5, FrameKey(90))),
            _ => Err(TreeError::Corrupt),
        };
        let mut stacks = Stacks::default();
        assert_eq!(stacks.id(9000, node), 3);
        assert_eq!(stacks.id(5, node), 2);
        assert_eq!(stacks.id(7, node), 4);
        assert_eq!(stacks.id(0, node), 0);
        assert_eq!(stacks.id(77, node), 0);
        assert_eq!(stacks.corrupt(), 1);
        let block = stacks.take().unwrap();
        let Ok(Block::Stacks(read)) = block.decode() else { panic!("no stacks") };
        let expected = [(0, 10), (1, 50), (2, 90), (1, 70)];
        assert_eq!(read.nodes, expected.map(|(parent, frame)| StackNode { parent, frame: Frame(frame) }));
        assert!(stacks.take().is_none());
    }

    #[test]
    fn a_loop_ends() {
        let mut stacks = Stacks::default();
        assert_eq!(stacks.id(5, |id| Ok((id, FrameKey(0)))), 0);
        assert_eq!(stacks.id(5, |_| Ok((6, FrameKey(0)))), 0);
        assert_eq!(stacks.corrupt(), 2);
    }
}
