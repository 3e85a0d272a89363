//! What events refer to: infos and stacks, with holes where the file is damaged.
use crate::map::IntMap;
use crate::site::Site;
use format::{Frame, Info, Infos, StackNode, Stacks};

/// Lost definitions that are kept a place for; a file that claims more of them lies.
const HOLES: usize = 1 << 22;
const LOST_NODE: StackNode = StackNode { parent: 0, frame: Frame::LOST };

#[derive(Clone, Copy)]
pub(crate) struct KnownInfo {
    pub(crate) size: u64,
    /// Index into `sites`; `u32::MAX`: this info's definition was lost.
    pub(crate) site: u32,
}

#[derive(Default)]
pub(crate) struct Definitions {
    pub(crate) infos: Vec<KnownInfo>,
    /// Stack id - 1.
    pub(crate) nodes: Vec<StackNode>,
    pub(crate) sites: Vec<Site>,
    /// The stack of each site.
    pub(crate) stacks: Vec<u32>,
    site_of_stack: IntMap<u32, u32>,
    holes: usize,
}

impl Definitions {
    /// False: the block does not fit what came before.
    pub(crate) fn add_infos(&mut self, block: &Infos) -> bool {
        let lost = KnownInfo { size: 0, site: u32::MAX };
        if !pad(&mut self.infos, block.first as usize, lost, &mut self.holes) {
            return false;
        }
        for &Info { size, stack } in &block.infos {
            let site = self.site(stack);
            self.infos.push(KnownInfo { size, site });
        }
        true
    }

    pub(crate) fn add_stacks(&mut self, block: &Stacks) -> bool {
        let Some(first) = (block.first as usize).checked_sub(1) else { return false };
        if !pad(&mut self.nodes, first, LOST_NODE, &mut self.holes) {
            return false;
        }
        self.nodes.extend_from_slice(&block.nodes);
        true
    }

    fn site(&mut self, stack: u32) -> u32 {
        let Definitions { sites, stacks, site_of_stack, .. } = self;
        *site_of_stack.entry(stack).or_insert_with(|| {
            sites.push(Site::NEW);
            stacks.push(stack);
            sites.len() as u32 - 1
        })
    }
}

/// Fills up to `first`; false if that goes back or too far.
fn pad<T: Copy>(list: &mut Vec<T>, first: usize, lost: T, holes: &mut usize) -> bool {
    let Some(gap) = first.checked_sub(list.len()) else { return false };
    if gap > HOLES - *holes {
        return false;
    }
    *holes += gap;
    list.resize(first, lost);
    true
}
