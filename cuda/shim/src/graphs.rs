//! Graphs of the driver and of the runtime, and the capture of streams.
//!
//! A graph is a list of nodes with what each does and which it comes after; a launch runs them one after the
//! other. A stream that is being captured adds nodes instead of doing something. Memory that a node allocates is
//! there from the node's creation until the device is reset, since programs learn its address then.
#![allow(non_snake_case, clippy::too_many_arguments)]

use std::collections::HashMap;
use std::ffi::{c_int, c_uint, c_void};

use crate::abi::get;
use crate::abi::{In, Out, arguments, put_list, status_of};
use crate::arrays::{Block, Copy3dDriver, Copy3dRuntime, copy_block};
use crate::devices;
use crate::driver::{HostFunction, call_host, calls, row_start, set, unchecked};
use crate::pools::{Access, Properties, opened};
use crate::runtime::{answer, kernel_of_stub, remembered, remembered_unchecked};
use crate::state::{
    CAPTURE_UNSUPPORTED, Code, EXEC, GRAPH, INVALID_HANDLE, INVALID_VALUE, NODE, NOT_CAPTURING,
    Request, Result, UPDATE_FAILED, handle, number, on_stream, state,
};

type Handle = *mut c_void;

/// What a node does.
#[derive(Clone)]
pub(crate) enum Work {
    Nothing,
    /// On the device that the function is of, whichever is current when the graph is launched.
    Kernel {
        function: Handle,
        device: usize,
        request: Request,
        args: Vec<u8>,
    },
    Copy {
        to: Block,
        from: Block,
        size: [usize; 3],
    },
    Set {
        to: u64,
        pitch: usize,
        pattern: Vec<u8>,
        width: usize,
        height: usize,
    },
    Host {
        function: HostFunction,
        data: Handle,
    },
    Child(Graph),
    Record(Handle),
    Wait,
    Alloc,
    Free,
}

// SAFETY: handles are numbers; the function and its data are the program's, which gives them for being called
// from any thread, as CUDA documents `cuGraphAddHostNode`.
unsafe impl Send for Work {}

impl Work {
    /// `CUgraphNodeType`.
    fn kind(&self) -> c_int {
        match self {
            Self::Kernel { .. } => 0,
            Self::Copy { .. } => 1,
            Self::Set { .. } => 2,
            Self::Host { .. } => 3,
            Self::Child(_) => 4,
            Self::Nothing => 5,
            Self::Wait => 6,
            Self::Record(_) => 7,
            Self::Alloc => 10,
            Self::Free => 11,
        }
    }

    /// The device that a kernel runs on.
    fn device(&self) -> Option<usize> {
        match self {
            Self::Kernel { device, .. } => Some(*device),
            _ => None,
        }
    }

    /// Whether it may take the place of another in a graph that can be launched: a kernel's device stays.
    fn replaces(&self, other: &Self) -> bool {
        self.kind() == other.kind() && self.device() == other.device()
    }
}

#[derive(Clone)]
struct Node {
    work: Work,
    after: Vec<usize>,
    /// Gone, when a node is destroyed: the numbers of the others stay.
    alive: bool,
    enabled: bool,
}

/// A graph.
#[derive(Clone, Default)]
pub(crate) struct Graph {
    nodes: Vec<Node>,
}

impl Graph {
    fn add(&mut self, work: Work, after: Vec<usize>) -> usize {
        self.nodes.push(Node { work, after, alive: true, enabled: true });
        self.nodes.len() - 1
    }

    /// Whether a kernel of it runs on a device.
    fn is_of(&self, device: usize) -> bool {
        self.nodes.iter().any(|node| match &node.work {
            Work::Child(graph) => graph.is_of(device),
            work => work.device() == Some(device),
        })
    }

    fn alive(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.nodes.len()).filter(|at| self.nodes[*at].alive)
    }

    /// The nodes, each behind those it comes after; an error where some come after each other.
    fn order(&self) -> Result<Vec<usize>> {
        let mut left: Vec<usize> = self.alive().collect();
        let mut out = Vec::new();
        while !left.is_empty() {
            let ready =
                |at: &usize| self.nodes[*at].after.iter().all(|before| !left.contains(before));
            let next: Vec<usize> = left.iter().copied().filter(ready).collect();
            if next.is_empty() {
                return Err(INVALID_VALUE);
            }
            left.retain(|at| !next.contains(at));
            out.extend(next);
        }
        Ok(out)
    }

    /// Runs the nodes.
    ///
    /// # Safety
    ///
    /// As CUDA documents `cuGraphLaunch`: what the nodes name is still there, and may be used as each node's
    /// parameters say.
    unsafe fn run(&self) -> Result {
        for at in self.order()? {
            if !self.nodes[at].enabled {
                continue;
            }
            // SAFETY: this function's contract.
            unsafe { self.nodes[at].work.run()? };
        }
        Ok(())
    }
}

impl Work {
    /// # Safety
    ///
    /// That of [`Graph::run`].
    unsafe fn run(&self) -> Result {
        match self {
            Self::Kernel { function, request, args, .. } => {
                let mut state = state();
                state.launch(*function, request, args)
            }
            // SAFETY: the caller keeps the contract of the parameters of the node.
            Self::Copy { to, from, size } => unsafe { copy_block(*to, *from, *size) },
            Self::Set { to, pitch, pattern, width, height } => {
                (0..*height).try_for_each(|row| set(row_start(*to, row, *pitch)?, pattern, *width))
            }
            // SAFETY: as above.
            Self::Host { function, data } => unsafe { call_host(Some(*function), *data) },
            // SAFETY: as above.
            Self::Child(graph) => unsafe { graph.run() },
            Self::Record(event) => state().event_record(*event),
            // The event is one of another stream: of whichever, this comes behind it.
            Self::Wait => state().wait_for_all(),
            Self::Nothing | Self::Alloc | Self::Free => Ok(()),
        }
    }
}

/// Where a capture is: its graph, and the nodes that what comes next comes after.
#[derive(Clone)]
struct Capture {
    graph: usize,
    last: Vec<usize>,
}

/// A graph that can be launched, and which it was made of.
struct Exec {
    source: usize,
    graph: Graph,
}

/// Every graph.
#[derive(Default)]
pub(crate) struct Graphs {
    graphs: Vec<Option<Graph>>,
    /// Of clones: the graph that it is of.
    origins: HashMap<usize, usize>,
    /// Graph and number in it, by handle.
    nodes: Vec<(usize, usize)>,
    execs: Vec<Option<Exec>>,
    streams: HashMap<usize, Capture>,
    events: HashMap<usize, Capture>,
}

impl Graphs {
    fn create(&mut self, graph: Graph) -> usize {
        self.graphs.push(Some(graph));
        self.graphs.len() - 1
    }

    fn graph(&mut self, graph: Handle) -> Result<(usize, &mut Graph)> {
        let at = number(GRAPH, graph)?;
        let slot = self.graphs.get_mut(at).and_then(Option::as_mut);
        Ok((at, slot.ok_or(INVALID_HANDLE)?))
    }

    /// The graph of a node, and its number there.
    fn place(&self, node: Handle) -> Result<(usize, usize)> {
        self.nodes.get(number(NODE, node)?).copied().ok_or(INVALID_HANDLE)
    }

    fn node(&mut self, node: Handle) -> Result<&mut Node> {
        let (graph, at) = self.place(node)?;
        let graph = self.graphs.get_mut(graph).and_then(Option::as_mut).ok_or(INVALID_HANDLE)?;
        graph.nodes.get_mut(at).filter(|node| node.alive).ok_or(INVALID_HANDLE)
    }

    /// The handle of a node: the same each time.
    fn handle_of(&mut self, place: (usize, usize)) -> Handle {
        let known = self.nodes.iter().position(|other| *other == place);
        let at = known.unwrap_or_else(|| {
            self.nodes.push(place);
            self.nodes.len() - 1
        });
        handle(NODE, at)
    }

    fn add(&mut self, graph: Handle, after: &[Handle], work: Work) -> Result<Handle> {
        let (index, _) = self.graph(graph)?;
        let after = self.numbers(index, after)?;
        let (_, graph) = self.graph(graph)?;
        let at = graph.add(work, after);
        Ok(self.handle_of((index, at)))
    }

    /// The numbers of nodes, which must be of this graph.
    fn numbers(&self, graph: usize, nodes: &[Handle]) -> Result<Vec<usize>> {
        let number = |node: &Handle| match self.place(*node)? {
            (owner, at) if owner == graph => Ok(at),
            _ => Err(INVALID_VALUE),
        };
        nodes.iter().map(number).collect()
    }

    /// Adds a node where a stream is captured; whether it is.
    pub(crate) fn captured(&mut self, stream: Handle, work: impl FnOnce() -> Work) -> bool {
        let Some(capture) = self.streams.get_mut(&stream.addr()) else { return false };
        if let Some(graph) = self.graphs.get_mut(capture.graph).and_then(Option::as_mut) {
            let at = graph.add(work(), std::mem::take(&mut capture.last));
            capture.last = vec![at];
        }
        true
    }

    pub(crate) fn is_capturing(&self, stream: Handle) -> bool {
        self.streams.contains_key(&stream.addr())
    }

    /// What a stream that is captured has done so far, an event is then; whether it is.
    pub(crate) fn record(&mut self, event: Handle, stream: Handle) -> bool {
        match self.streams.get(&stream.addr()) {
            Some(capture) => {
                self.events.insert(event.addr(), capture.clone());
                true
            }
            None => {
                self.events.remove(&event.addr());
                false
            }
        }
    }

    /// A stream that waits for an event of a capture is captured, too.
    pub(crate) fn wait(&mut self, stream: Handle, event: Handle) {
        let Some(event) = self.events.get(&event.addr()) else { return };
        let of_stream = self.streams.entry(stream.addr());
        let capture = of_stream.or_insert_with(|| Capture { graph: event.graph, last: Vec::new() });
        if capture.graph == event.graph {
            let new = event.last.iter().filter(|at| !capture.last.contains(at)).copied();
            let new: Vec<usize> = new.collect();
            capture.last.extend(new);
        }
    }

    fn begin(&mut self, stream: Handle) -> Result {
        if self.is_capturing(stream) {
            return Err(CAPTURE_UNSUPPORTED);
        }
        let graph = self.create(Graph::default());
        self.streams.insert(stream.addr(), Capture { graph, last: Vec::new() });
        Ok(())
    }

    fn end(&mut self, stream: Handle) -> Result<Handle> {
        let Capture { graph, .. } = self.streams.remove(&stream.addr()).ok_or(NOT_CAPTURING)?;
        self.streams.retain(|_, capture| capture.graph != graph);
        self.events.retain(|_, capture| capture.graph != graph);
        Ok(handle(GRAPH, graph))
    }

    fn instantiate(&mut self, graph: Handle) -> Result<Handle> {
        let (source, graph) = self.graph(graph)?;
        graph.order()?;
        let graph = graph.clone();
        self.execs.push(Some(Exec { source, graph }));
        Ok(handle(EXEC, self.execs.len() - 1))
    }

    fn exec(&mut self, exec: Handle) -> Result<&mut Exec> {
        self.execs.get_mut(number(EXEC, exec)?).and_then(Option::as_mut).ok_or(INVALID_HANDLE)
    }

    /// A node of a graph as it is in an executable one: of the same kind.
    fn set_in_exec(&mut self, exec: Handle, node: Handle, work: Work) -> Result {
        let (graph, at) = self.place(node)?;
        let exec = self.exec(exec)?;
        let known = exec.graph.nodes.get_mut(at).filter(|_| exec.source == graph);
        let node = known.filter(|node| work.replaces(&node.work)).ok_or(INVALID_VALUE)?;
        node.work = work;
        Ok(())
    }

    /// Takes over the parameters of a graph with the same nodes; else says why not.
    fn update(&mut self, exec: Handle, graph: Handle) -> Result<Update> {
        let (_, graph) = self.graph(graph)?;
        let graph = graph.clone();
        let exec = self.exec(exec)?;
        let mut pairs = exec.graph.nodes.iter().zip(&graph.nodes);
        let same = exec.graph.nodes.len() == graph.nodes.len()
            && pairs.clone().all(|(old, new)| {
                old.work.kind() == new.work.kind()
                    && old.after == new.after
                    && old.alive == new.alive
            });
        if !same {
            return Ok(Update::OtherNodes);
        }
        if !pairs.all(|(old, new)| new.work.replaces(&old.work)) {
            return Ok(Update::OtherDevice);
        }
        exec.graph = graph;
        Ok(Update::Done)
    }

    /// A device is reset: graphs with kernels of it are gone.
    pub(crate) fn forget(&mut self, device: usize) {
        let is_its = |graph: &Graph| graph.is_of(device);
        self.graphs.iter_mut().for_each(|slot| _ = slot.take_if(|graph| is_its(graph)));
        self.execs.iter_mut().for_each(|slot| _ = slot.take_if(|exec| is_its(&exec.graph)));
    }
}

/// `CUgraphExecUpdateResult`, as far as there are reasons here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Update {
    Done = 0,
    OtherNodes = 2,
    OtherDevice = 7,
}

/// `cudaKernelNodeParams`, which is `CUDA_KERNEL_NODE_PARAMS` as far as it goes.
#[derive(Clone, Copy)]
#[repr(C)]
struct KernelParams {
    function: Handle,
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared_bytes: c_uint,
    params: *mut Handle,
    extra: *mut Handle,
}

impl KernelParams {
    /// # Safety
    ///
    /// As CUDA documents them: `params` and `extra` keep the contract of [`arguments`].
    unsafe fn work(self, function: Handle) -> Result<Work> {
        let Self { grid, block, shared_bytes, params, extra, .. } = self;
        let (function, sizes, device) = {
            let mut state = state();
            let function = state.kernel_on(function, devices::current())?;
            (function, state.params(function)?, state.device_of_kernel(function)?)
        };
        // SAFETY: this function's contract, and the sizes are those of the kernel's parameters.
        let args = unsafe { arguments(&sizes, params, extra)? };
        let request = Request { grid, block, shared_bytes, cooperative: false };
        Ok(Work::Kernel { function, device, request, args })
    }
}

/// `cudaMemsetParams`, which is `CUDA_MEMSET_NODE_PARAMS`.
#[derive(Clone, Copy)]
#[repr(C)]
struct SetParams {
    to: u64,
    pitch: usize,
    value: c_uint,
    element: c_uint,
    width: usize,
    height: usize,
}

impl SetParams {
    fn work(self) -> Result<Work> {
        let Self { to, pitch, value, element, width, height } = self;
        let pattern = value.to_ne_bytes().get(..element as usize).ok_or(INVALID_VALUE)?.to_vec();
        Ok(Work::Set { to, pitch, pattern, width, height: height.max(1) })
    }
}

/// `cudaHostNodeParams`, which is `CUDA_HOST_NODE_PARAMS`.
#[derive(Clone, Copy)]
#[repr(C)]
struct HostParams {
    function: Option<HostFunction>,
    data: Handle,
}

impl HostParams {
    fn work(self) -> Result<Work> {
        Ok(Work::Host { function: self.function.ok_or(INVALID_VALUE)?, data: self.data })
    }
}

/// `cudaMemAllocNodeParams`: properties of a pool, who may access the memory, the size, and where the address goes.
#[derive(Clone, Copy)]
#[repr(C)]
struct AllocParams {
    pool: Properties,
    _pool: [u64; 9],
    access: *const Access,
    access_count: usize,
    size: usize,
    address: u64,
}

/// A list that a program hands in with its length.
///
/// # Safety
///
/// `count` handles are at `list`, or none.
unsafe fn list(list: *const Handle, count: usize) -> Result<Vec<Handle>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: the caller promises as many, and a handle has the size of a pointer.
    let bytes =
        unsafe { crate::abi::bytes(list.cast(), count.checked_mul(8).ok_or(INVALID_VALUE)?)? };
    let handle = |bytes: &[u8]| {
        let mut word = [0; 8];
        word.copy_from_slice(bytes);
        std::ptr::without_provenance_mut(usize::from_ne_bytes(word))
    };
    Ok(bytes.chunks_exact(8).map(handle).collect())
}

/// Adds a node; `after` and `count` are the nodes that it comes after.
///
/// # Safety
///
/// That of [`list`].
unsafe fn add(
    out: Out<Handle>,
    graph: Handle,
    after: *const Handle,
    count: usize,
    work: Work,
) -> Result {
    // SAFETY: this function's contract.
    let after = unsafe { list(after, count)? };
    out.put(state().graphs.add(graph, &after, work)?)
}

/// A copy of one line.
pub(crate) fn line(to: u64, from: u64, size: usize, kind: c_int) -> Work {
    let block = |start, on_device| Block { start, row: size, plane: size, on_device };
    let (to, from) = (block(to, matches!(kind, 1 | 3)), block(from, matches!(kind, 2 | 3)));
    Work::Copy { to, from, size: [size, 1, 1] }
}

/// Gives the handles of nodes: as many as there is room for, or their number alone.
///
/// # Safety
///
/// As CUDA documents `cuGraphGetNodes`: `out` is null, or has room for as many as `count` says.
unsafe fn give(nodes: Vec<Handle>, out: *mut Handle, count: *mut usize) -> Result {
    // SAFETY: this function's contract.
    unsafe { put_list(&nodes, out, count) }
}

fn nodes_of(graph: Handle, wanted: impl Fn(&[usize]) -> bool) -> Result<Vec<Handle>> {
    let mut state = state();
    let graphs = &mut state.graphs;
    let (index, graph) = graphs.graph(graph)?;
    let found: Vec<usize> = graph.alive().filter(|at| wanted(&graph.nodes[*at].after)).collect();
    Ok(found.into_iter().map(|at| graphs.handle_of((index, at))).collect())
}

fn dependencies_of(node: Handle) -> Result<Vec<Handle>> {
    let mut state = state();
    let (graph, _) = state.graphs.place(node)?;
    let after = state.graphs.node(node)?.after.clone();
    Ok(after.into_iter().map(|at| state.graphs.handle_of((graph, at))).collect())
}

/// Adds edges, or takes them away.
///
/// # Safety
///
/// That of [`list`], for both lists.
unsafe fn edges(
    graph: Handle,
    from: *const Handle,
    to: *const Handle,
    count: usize,
    add: bool,
) -> Result {
    // SAFETY: this function's contract.
    let (from, to) = unsafe { (list(from, count)?, list(to, count)?) };
    let mut state = state();
    let (index, _) = state.graphs.graph(graph)?;
    let from = state.graphs.numbers(index, &from)?;
    for (from, to) in from.into_iter().zip(to) {
        let after = &mut state.graphs.node(to)?.after;
        after.retain(|at| *at != from);
        if add {
            after.push(from);
        }
    }
    Ok(())
}

/// # Safety
///
/// That of [`Graph::run`].
unsafe fn launch(exec: Handle, stream: Handle) -> Result {
    let graph = {
        let mut state = state();
        let graph = state.graphs.exec(exec)?.graph.clone();
        let captured = graph.clone();
        if state.captures(stream, || Work::Child(captured))? {
            return Ok(());
        }
        graph
    };
    // SAFETY: this function's contract.
    on_stream(stream, || unsafe { graph.run() })
}

/// Allocates for a node, on the device that its parameters name.
///
/// # Safety
///
/// As CUDA documents them: `access` has `access_count` entries.
unsafe fn allocate(graph: Handle, after: &[Handle], params: &mut AllocParams) -> Result<Handle> {
    let device = params.pool.device()?;
    // SAFETY: this function's contract.
    let open_to = unsafe { opened((device, 0), params.access, params.access_count)? };
    let mut state = state();
    params.address = state.alloc_of(device, params.size.max(1) as u64)?;
    state.device.open_to(params.address, open_to);
    state.graphs.add(graph, after, Work::Alloc)
}

/// The functions that the driver and the runtime have alike, by the driver's names and the runtime's.
macro_rules! both {
    (safe $($driver:ident $runtime:ident($($arg:ident: $T:ty),*) $body:block)*) => {
        calls! { $($driver($($arg: $T),*) $body)* }
        remembered! { $($runtime($($arg: $T),*) $body)* }
    };
    (unchecked $($driver:ident $runtime:ident($($arg:ident: $T:ty),*) $body:block)*) => {
        unchecked! { $($driver($($arg: $T),*) $body)* }
        remembered_unchecked! { $($runtime($($arg: $T),*) $body)* }
    };
}

both! { safe
    cuGraphCreate cudaGraphCreate(out: Out<Handle>, flags: c_uint) {
        let _ = flags;
        let graph = state().graphs.create(Graph::default());
        out.put(handle(GRAPH, graph))
    }
    cuGraphDestroy cudaGraphDestroy(graph: Handle) {
        let mut state = state();
        let (at, _) = state.graphs.graph(graph)?;
        state.graphs.graphs[at] = None;
        Ok(())
    }
    cuGraphDestroyNode cudaGraphDestroyNode(node: Handle) {
        let mut state = state();
        let (graph, at) = state.graphs.place(node)?;
        state.graphs.node(node)?.alive = false;
        let graph = state.graphs.graphs.get_mut(graph).and_then(Option::as_mut);
        for node in &mut graph.ok_or(INVALID_HANDLE)?.nodes {
            node.after.retain(|before| *before != at);
        }
        Ok(())
    }
    cuGraphClone cudaGraphClone(out: Out<Handle>, graph: Handle) {
        let mut state = state();
        let (origin, graph) = state.graphs.graph(graph)?;
        let copy = graph.clone();
        let at = state.graphs.create(copy);
        state.graphs.origins.insert(at, origin);
        out.put(handle(GRAPH, at))
    }
    cuGraphNodeFindInClone cudaGraphNodeFindInClone(out: Out<Handle>, node: Handle, clone: Handle) {
        let mut state = state();
        let (origin, at) = state.graphs.place(node)?;
        let (copy, _) = state.graphs.graph(clone)?;
        if state.graphs.origins.get(&copy) != Some(&origin) { return Err(INVALID_VALUE) }
        out.put(state.graphs.handle_of((copy, at)))
    }
    cuGraphNodeGetType cudaGraphNodeGetType(node: Handle, out: Out<c_int>) {
        out.put(state().graphs.node(node)?.work.kind())
    }
    cuGraphChildGraphNodeGetGraph cudaGraphChildGraphNodeGetGraph(node: Handle, out: Out<Handle>) {
        let mut state = state();
        let Work::Child(child) = &state.graphs.node(node)?.work else { return Err(INVALID_VALUE) };
        let copy = child.clone();
        let at = state.graphs.create(copy);
        out.put(handle(GRAPH, at))
    }
    cuGraphNodeSetEnabled cudaGraphNodeSetEnabled(exec: Handle, node: Handle, enabled: c_uint) {
        let mut state = state();
        let (_, at) = state.graphs.place(node)?;
        let node = state.graphs.exec(exec)?.graph.nodes.get_mut(at).ok_or(INVALID_VALUE)?;
        node.enabled = enabled != 0;
        Ok(())
    }
    cuGraphNodeGetEnabled cudaGraphNodeGetEnabled(exec: Handle, node: Handle, out: Out<c_uint>) {
        let mut state = state();
        let (_, at) = state.graphs.place(node)?;
        let node = state.graphs.exec(exec)?.graph.nodes.get(at).ok_or(INVALID_VALUE)?;
        out.put(node.enabled.into())
    }
    cuGraphInstantiateWithFlags cudaGraphInstantiate(out: Out<Handle>, graph: Handle, flags: u64) {
        let _ = flags;
        let exec = state().graphs.instantiate(graph)?;
        out.put(exec)
    }
    cuGraphExecDestroy cudaGraphExecDestroy(exec: Handle) {
        let mut state = state();
        state.graphs.exec(exec)?;
        let at = number(EXEC, exec)?;
        state.graphs.execs[at] = None;
        Ok(())
    }
    cuGraphUpload cudaGraphUpload(exec: Handle, stream: Handle) {
        let mut state = state();
        state.stream(stream)?;
        state.graphs.exec(exec).map(|_| ())
    }
    cuGraphExecGetFlags cudaGraphExecGetFlags(exec: Handle, out: Out<u64>) {
        state().graphs.exec(exec)?;
        out.put(0)
    }
    cuGraphExecUpdate_v2 cudaGraphExecUpdate(exec: Handle, graph: Handle, info: Out<[u64; 3]>) {
        let update = state().graphs.update(exec, graph)?;
        info.put_if_wanted([update as u64, 0, 0]);
        if update == Update::Done { Ok(()) } else { Err(UPDATE_FAILED) }
    }
    cuStreamBeginCapture_v2 cudaStreamBeginCapture(stream: Handle, mode: c_uint) {
        let _ = mode;
        let mut state = state();
        state.stream(stream)?;
        state.graphs.begin(stream)
    }
    cuStreamEndCapture cudaStreamEndCapture(stream: Handle, out: Out<Handle>) {
        let graph = state().graphs.end(stream)?;
        out.put(graph)
    }
    cuStreamIsCapturing cudaStreamIsCapturing(stream: Handle, out: Out<c_int>) {
        let state = state();
        state.known_stream(stream)?;
        out.put(state.graphs.is_capturing(stream).into())
    }
    cuStreamGetCaptureInfo_v2 cudaStreamGetCaptureInfo_v2(
        stream: Handle, status: Out<c_int>, id: Out<u64>, graph: Out<Handle>, last: Out<Handle>, count: Out<usize>
    ) {
        capture_info(stream, status, id, graph, last, count)
    }
    cuStreamGetCaptureInfo_v3 cudaStreamGetCaptureInfo_v3(
        stream: Handle, status: Out<c_int>, id: Out<u64>, graph: Out<Handle>, last: Out<Handle>,
        kinds: Out<Handle>, count: Out<usize>
    ) {
        if !kinds.is_null() { return Err(crate::state::NOT_SUPPORTED) }
        capture_info(stream, status, id, graph, last, count)
    }
    cuDeviceGetGraphMemAttribute cudaDeviceGetGraphMemAttribute(device: c_int, attribute: c_int, out: Out<u64>) {
        let _ = (device, attribute);
        out.put(0)
    }
    cuDeviceGraphMemTrim cudaDeviceGraphMemTrim(device: c_int) {
        let _ = device;
        Ok(())
    }
    cuGraphHostNodeSetParams cudaGraphHostNodeSetParams(node: Handle, params: In<HostParams>) {
        state().graphs.node(node)?.work = params.get()?.work()?;
        Ok(())
    }
    cuGraphMemsetNodeSetParams cudaGraphMemsetNodeSetParams(node: Handle, params: In<SetParams>) {
        state().graphs.node(node)?.work = params.get()?.work()?;
        Ok(())
    }
    cuGraphExecHostNodeSetParams cudaGraphExecHostNodeSetParams(
        exec: Handle, node: Handle, params: In<HostParams>
    ) {
        state().graphs.set_in_exec(exec, node, params.get()?.work()?)
    }
}

/// Whether a stream is captured, and into which graph.
fn capture_info(
    stream: Handle,
    status: Out<c_int>,
    id: Out<u64>,
    graph: Out<Handle>,
    last: Out<Handle>,
    count: Out<usize>,
) -> Result {
    let state = state();
    state.known_stream(stream)?;
    let capture = state.graphs.streams.get(&stream.addr());
    status.put(capture.is_some().into())?;
    if let Some(capture) = capture {
        id.put_if_wanted(capture.graph as u64 + 1);
        graph.put_if_wanted(handle(GRAPH, capture.graph));
        if !last.is_null() {
            return Err(crate::state::NOT_SUPPORTED);
        }
        count.put_if_wanted(capture.last.len());
    }
    Ok(())
}

/// `CUgraphEdgeData`, of the size of a handle; zeros are an edge that waits for all of a node.
type EdgeKind = Handle;
const WHOLE: EdgeKind = std::ptr::null_mut();

/// Refuses edges that wait for a part of a node; none are given where all are plain.
///
/// # Safety
///
/// As CUDA documents `edgeData`: null, or `count` of them.
unsafe fn all_whole(kinds: *const EdgeKind, count: usize) -> Result {
    if kinds.is_null() {
        return Ok(());
    }
    // SAFETY: the caller says so.
    match unsafe { list(kinds, count) }?.iter().all(|kind| kind.is_null()) {
        true => Ok(()),
        false => Err(crate::state::NOT_SUPPORTED),
    }
}

both! { unchecked
    cuGraphGetNodes cudaGraphGetNodes(graph: Handle, out: *mut Handle, count: *mut usize) {
        give(nodes_of(graph, |_| true)?, out, count)
    }
    cuGraphGetRootNodes cudaGraphGetRootNodes(graph: Handle, out: *mut Handle, count: *mut usize) {
        give(nodes_of(graph, <[usize]>::is_empty)?, out, count)
    }
    cuGraphNodeGetDependencies cudaGraphNodeGetDependencies(node: Handle, out: *mut Handle, count: *mut usize) {
        give(dependencies_of(node)?, out, count)
    }
    cuGraphAddDependencies cudaGraphAddDependencies(
        graph: Handle, from: *const Handle, to: *const Handle, count: usize
    ) {
        edges(graph, from, to, count, true)
    }
    cuGraphRemoveDependencies cudaGraphRemoveDependencies(
        graph: Handle, from: *const Handle, to: *const Handle, count: usize
    ) {
        edges(graph, from, to, count, false)
    }
    cuGraphNodeGetDependencies_v2 cudaGraphNodeGetDependencies_v2(
        node: Handle, out: *mut Handle, kinds: *mut EdgeKind, count: *mut usize
    ) {
        let found = dependencies_of(node)?;
        if !kinds.is_null() {
            give(vec![WHOLE; found.len()], kinds, &mut get(count.cast_const())?)?;
        }
        give(found, out, count)
    }
    cuGraphAddDependencies_v2 cudaGraphAddDependencies_v2(
        graph: Handle, from: *const Handle, to: *const Handle, kinds: *const EdgeKind, count: usize
    ) {
        all_whole(kinds, count)?;
        edges(graph, from, to, count, true)
    }
    cuGraphRemoveDependencies_v2 cudaGraphRemoveDependencies_v2(
        graph: Handle, from: *const Handle, to: *const Handle, kinds: *const EdgeKind, count: usize
    ) {
        all_whole(kinds, count)?;
        edges(graph, from, to, count, false)
    }
    cuGraphAddEmptyNode cudaGraphAddEmptyNode(
        out: Out<Handle>, graph: Handle, after: *const Handle, count: usize
    ) {
        add(out, graph, after, count, Work::Nothing)
    }
    cuGraphAddHostNode cudaGraphAddHostNode(
        out: Out<Handle>, graph: Handle, after: *const Handle, count: usize, params: In<HostParams>
    ) {
        add(out, graph, after, count, params.get()?.work()?)
    }
    cuGraphAddChildGraphNode cudaGraphAddChildGraphNode(
        out: Out<Handle>, graph: Handle, after: *const Handle, count: usize, child: Handle
    ) {
        let child = state().graphs.graph(child)?.1.clone();
        add(out, graph, after, count, Work::Child(child))
    }
    cuGraphAddEventRecordNode cudaGraphAddEventRecordNode(
        out: Out<Handle>, graph: Handle, after: *const Handle, count: usize, event: Handle
    ) {
        state().event(event)?;
        add(out, graph, after, count, Work::Record(event))
    }
    cuGraphAddEventWaitNode cudaGraphAddEventWaitNode(
        out: Out<Handle>, graph: Handle, after: *const Handle, count: usize, event: Handle
    ) {
        state().event(event)?;
        add(out, graph, after, count, Work::Wait)
    }
    cuGraphAddMemAllocNode cudaGraphAddMemAllocNode(
        out: Out<Handle>, graph: Handle, after: *const Handle, count: usize, params: *mut AllocParams
    ) {
        let mut copy = get(params.cast_const())?;
        let node = allocate(graph, &list(after, count)?, &mut copy)?;
        params.write_unaligned(copy);
        out.put(node)
    }
    cuGraphAddMemFreeNode cudaGraphAddMemFreeNode(
        out: Out<Handle>, graph: Handle, after: *const Handle, count: usize, address: u64
    ) {
        state().inside(address, 1)?;
        add(out, graph, after, count, Work::Free)
    }
    cuGraphLaunch cudaGraphLaunch(exec: Handle, stream: Handle) { launch(exec, stream) }
}

unchecked! {
    cuGraphAddMemsetNode(
        out: Out<Handle>, graph: Handle, after: *const Handle, count: usize, params: In<SetParams>, context: Handle
    ) {
        let _ = context;
        add(out, graph, after, count, params.get()?.work()?)
    }
    cuGraphAddKernelNode_v2(
        out: Out<Handle>, graph: Handle, after: *const Handle, count: usize, params: In<KernelParams>
    ) {
        let params = params.get()?;
        add(out, graph, after, count, params.work(params.function)?)
    }
    cuGraphKernelNodeSetParams_v2(node: Handle, params: In<KernelParams>) {
        let params = params.get()?;
        let work = params.work(params.function)?;
        state().graphs.node(node)?.work = work;
        Ok(())
    }
    cuGraphExecKernelNodeSetParams_v2(exec: Handle, node: Handle, params: In<KernelParams>) {
        let params = params.get()?;
        let work = params.work(params.function)?;
        state().graphs.set_in_exec(exec, node, work)
    }
    cuGraphAddMemcpyNode(
        out: Out<Handle>, graph: Handle, after: *const Handle, count: usize, copy: In<Copy3dDriver>, context: Handle
    ) {
        let _ = context;
        let (to, from, size) = copy.get()?.blocks()?;
        add(out, graph, after, count, Work::Copy { to, from, size })
    }
}

remembered_unchecked! {
    cudaGraphAddMemsetNode(
        out: Out<Handle>, graph: Handle, after: *const Handle, count: usize, params: In<SetParams>
    ) {
        add(out, graph, after, count, params.get()?.work()?)
    }
    cudaGraphAddKernelNode(
        out: Out<Handle>, graph: Handle, after: *const Handle, count: usize, params: In<KernelParams>
    ) {
        let params = params.get()?;
        add(out, graph, after, count, params.work(kernel_of_stub(params.function)?)?)
    }
    cudaGraphKernelNodeSetParams(node: Handle, params: In<KernelParams>) {
        let params = params.get()?;
        let work = params.work(kernel_of_stub(params.function)?)?;
        state().graphs.node(node)?.work = work;
        Ok(())
    }
    cudaGraphExecKernelNodeSetParams(exec: Handle, node: Handle, params: In<KernelParams>) {
        let params = params.get()?;
        let work = params.work(kernel_of_stub(params.function)?)?;
        state().graphs.set_in_exec(exec, node, work)
    }
    cudaGraphAddMemcpyNode(
        out: Out<Handle>, graph: Handle, after: *const Handle, count: usize, copy: In<Copy3dRuntime>
    ) {
        let (to, from, size) = copy.get()?.blocks()?;
        add(out, graph, after, count, Work::Copy { to, from, size })
    }
    cudaGraphAddMemcpyNode1D(
        out: Out<Handle>, graph: Handle, after: *const Handle, count: usize, to: u64, from: u64, size: usize,
        kind: c_int
    ) {
        add(out, graph, after, count, line(to, from, size, kind))
    }
}

remembered! {
    cudaGraphInstantiateWithFlags(out: Out<Handle>, graph: Handle, flags: u64) {
        let _ = flags;
        let exec = state().graphs.instantiate(graph)?;
        out.put(exec)
    }
    cudaGraphExecMemsetNodeSetParams(exec: Handle, node: Handle, params: In<SetParams>) {
        state().graphs.set_in_exec(exec, node, params.get()?.work()?)
    }
    cudaGraphMemcpyNodeSetParams(node: Handle, copy: In<Copy3dRuntime>) {
        let (to, from, size) = copy.get()?.blocks()?;
        state().graphs.node(node)?.work = Work::Copy { to, from, size };
        Ok(())
    }
    cudaGraphExecMemcpyNodeSetParams(exec: Handle, node: Handle, copy: In<Copy3dRuntime>) {
        let (to, from, size) = copy.get()?.blocks()?;
        state().graphs.set_in_exec(exec, node, Work::Copy { to, from, size })
    }
    cudaGraphExecMemcpyNodeSetParams1D(
        exec: Handle, node: Handle, to: u64, from: u64, size: usize, kind: c_int
    ) {
        state().graphs.set_in_exec(exec, node, line(to, from, size, kind))
    }
}
