//! Views, stored once however many cells share them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base::{ObjectId, View};

/// Where a node looks up the view of a cell that it touches for the first time.
///
/// A view that this node joined belongs here only after [`change_view`](crate::LeaseNode::change_view) told of it.
pub trait ViewSource {
    /// The current view of `cell`, if this node knows the object.
    fn view(&self, cell: ObjectId) -> Option<Cow<'_, View>>;
}

/// Every cell has the same view.
impl ViewSource for View {
    fn view(&self, _cell: ObjectId) -> Option<Cow<'_, View>> {
        Some(Cow::Borrowed(self))
    }
}

impl ViewSource for BTreeMap<ObjectId, View> {
    fn view(&self, cell: ObjectId) -> Option<Cow<'_, View>> {
        self.get(&cell).map(Cow::Borrowed)
    }
}

/// A view in the table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ViewHandle(u32);

/// Interned views with use counts, so that the table follows the number of views in use.
#[derive(Clone, Debug, Default)]
pub(crate) struct ViewTable {
    views: Vec<(View, u64)>,
    free: Vec<u32>,
    handles: BTreeMap<View, u32>,
    latest: u32,
}

impl ViewTable {
    pub(crate) fn get(&self, handle: ViewHandle) -> &View {
        &self.views[handle.0 as usize].0
    }

    /// Adds one use of `view`.
    pub(crate) fn intern(&mut self, view: &View) -> ViewHandle {
        // Cells touched together mostly share a view.
        if self.views.get(self.latest as usize).is_none_or(|(latest, uses)| latest != view || *uses == 0) {
            self.latest = self.find_or_insert(view);
        }
        self.views[self.latest as usize].1 += 1;
        ViewHandle(self.latest)
    }

    /// Adds one use of a view that is in use already.
    pub(crate) fn share(&mut self, handle: ViewHandle) -> ViewHandle {
        self.views[handle.0 as usize].1 += 1;
        handle
    }

    /// Ends one use.
    pub(crate) fn release(&mut self, handle: ViewHandle) {
        let (view, uses) = &mut self.views[handle.0 as usize];
        *uses -= 1;
        if *uses == 0 {
            self.handles.remove(view);
            self.free.push(handle.0);
        }
    }

    /// The views in use with their places.
    pub(crate) fn in_use(&self) -> &BTreeMap<View, u32> {
        &self.handles
    }

    fn find_or_insert(&mut self, view: &View) -> u32 {
        if let Some(&handle) = self.handles.get(view) {
            return handle;
        }
        let handle = match self.free.pop() {
            Some(handle) => {
                self.views[handle as usize] = (view.clone(), 0);
                handle
            }
            None => {
                self.views.push((view.clone(), 0));
                u32::try_from(self.views.len() - 1)
                    .expect("fewer views than registers, whose slots are 32 bits")
            }
        };
        self.handles.insert(view.clone(), handle);
        handle
    }
}

#[cfg(test)]
mod tests {
    use base::{Members, NodeId, ViewId};

    use super::*;

    fn view(member: u32) -> View {
        View { id: ViewId::default(), members: Members::new([NodeId(member)]).unwrap() }
    }

    #[test]
    fn a_view_is_stored_while_it_is_used() {
        let mut table = ViewTable::default();
        let first = table.intern(&view(1));
        assert_eq!(table.intern(&view(1)), first);
        let second = table.intern(&view(2));
        assert_eq!(table.get(second), &view(2));
        table.release(first);
        table.release(first);
        let third = table.intern(&view(3));
        assert_eq!(third, first, "the place is used again");
        assert_eq!((table.get(third), table.views.len()), (&view(3), 2));
        let fourth = table.intern(&view(1));
        assert_eq!(table.get(fourth), &view(1));
    }
}
