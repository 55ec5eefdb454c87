//! Functions that libcuda exports and the emulator cannot do: a program that is linked with one starts, and
//! a call says which it is.
//!
//! Together with those of `driver` they are what libcuda of driver 550 exports and what `cuda.h` of CUDA 12.9 and 13.0
//! declares.
#![allow(non_snake_case)]

use std::ffi::CStr;
use std::sync::Once;

use crate::state::{Code, NOT_SUPPORTED, print_message};

macro_rules! unsupported {
    ($($name:ident),* $(,)?) => {
        $(#[unsafe(no_mangle)]
        extern "C" fn $name() -> Code {
            static TOLD: Once = Once::new();
            TOLD.call_once(|| {
                print_message(concat!(stringify!($name), " is not supported: it returns error 801"));
            });
            NOT_SUPPORTED
        })*

        /// Their names.
        pub(crate) const NAMES: &[&CStr] = &[$(
            match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name has one zero byte, at its end"),
            }
        ),*];
    };
}

unsupported! {
    cuArray3DCreate, cuArray3DGetDescriptor, cuArrayCreate, cuArrayGetDescriptor,
    cuArrayGetMemoryRequirements, cuArrayGetPlane, cuArrayGetSparseProperties,
    cuCheckpointProcessCheckpoint, cuCheckpointProcessGetRestoreThreadId,
    cuCheckpointProcessGetState, cuCheckpointProcessLock, cuCheckpointProcessRestore,
    cuCheckpointProcessUnlock, cuCoredumpGetAttribute, cuCoredumpGetAttributeGlobal,
    cuCoredumpSetAttribute, cuCoredumpSetAttributeGlobal, cuCtxAttach, cuCtxCreate,
    cuCtxDetach, cuCtxFromGreenCtx,
    cuCtxGetDevResource, cuCtxGetExecAffinity, cuCtxRecordEvent, cuCtxWaitEvent,
    cuDestroyExternalMemory, cuDestroyExternalSemaphore, cuDevResourceGenerateDesc,
    cuDevSmResourceSplitByCount, cuDeviceGetDevResource, cuDeviceGetExecAffinitySupport,
    cuDeviceGetHostAtomicCapabilities, cuDeviceGetLuid, cuDeviceGetNvSciSyncAttributes,
    cuDeviceGetP2PAtomicCapabilities, cuDeviceGetProperties,
    cuDeviceGetTexture1DLinearMaxWidth, cuDeviceRegisterAsyncNotification,
    cuDeviceSetGraphMemAttribute, cuDeviceTotalMem, cuDeviceUnregisterAsyncNotification,
    cuEGLApiInit, cuEGLStreamConsumerAcquireFrame, cuEGLStreamConsumerConnect,
    cuEGLStreamConsumerConnectWithFlags, cuEGLStreamConsumerDisconnect,
    cuEGLStreamConsumerReleaseFrame, cuEGLStreamProducerConnect, cuEGLStreamProducerDisconnect,
    cuEGLStreamProducerPresentFrame, cuEGLStreamProducerReturnFrame, cuEventRecordWithFlags_ptsz,
    cuEventRecord_ptsz, cuExternalMemoryGetMappedBuffer, cuExternalMemoryGetMappedMipmappedArray,
    cuFlushGPUDirectRDMAWrites, cuFuncGetParamInfo, cuFuncSetBlockShape, cuFuncSetSharedSize,
    cuGLCtxCreate, cuGLCtxCreate_v2, cuGLGetDevices, cuGLGetDevices_v2, cuGLInit,
    cuGLMapBufferObject, cuGLMapBufferObjectAsync, cuGLMapBufferObjectAsync_v2,
    cuGLMapBufferObjectAsync_v2_ptsz, cuGLMapBufferObject_v2, cuGLMapBufferObject_v2_ptds,
    cuGLRegisterBufferObject, cuGLSetBufferObjectMapFlags, cuGLUnmapBufferObject,
    cuGLUnmapBufferObjectAsync, cuGLUnregisterBufferObject, cuGraphAddBatchMemOpNode,
    cuGraphAddExternalSemaphoresSignalNode, cuGraphAddExternalSemaphoresWaitNode,
    cuGraphAddKernelNode, cuGraphAddNode, cuGraphAddNode_v2, cuGraphBatchMemOpNodeGetParams,
    cuGraphBatchMemOpNodeSetParams, cuGraphConditionalHandleCreate, cuGraphDebugDotPrint,
    cuGraphEventRecordNodeGetEvent, cuGraphEventRecordNodeSetEvent, cuGraphEventWaitNodeGetEvent,
    cuGraphEventWaitNodeSetEvent, cuGraphExecBatchMemOpNodeSetParams,
    cuGraphExecChildGraphNodeSetParams, cuGraphExecEventRecordNodeSetEvent,
    cuGraphExecEventWaitNodeSetEvent, cuGraphExecExternalSemaphoresSignalNodeSetParams,
    cuGraphExecExternalSemaphoresWaitNodeSetParams, cuGraphExecKernelNodeSetParams,
    cuGraphExecMemcpyNodeSetParams, cuGraphExecMemsetNodeSetParams, cuGraphExecNodeSetParams,
    cuGraphExecUpdate, cuGraphExternalSemaphoresSignalNodeGetParams,
    cuGraphExternalSemaphoresSignalNodeSetParams, cuGraphExternalSemaphoresWaitNodeGetParams,
    cuGraphExternalSemaphoresWaitNodeSetParams, cuGraphGetEdges, cuGraphGetEdges_v2,
    cuGraphHostNodeGetParams, cuGraphInstantiate, cuGraphInstantiateWithParams,
    cuGraphInstantiateWithParams_ptsz, cuGraphInstantiate_v2, cuGraphKernelNodeCopyAttributes,
    cuGraphKernelNodeGetAttribute, cuGraphKernelNodeGetParams, cuGraphKernelNodeGetParams_v2,
    cuGraphKernelNodeSetAttribute, cuGraphKernelNodeSetParams, cuGraphLaunch_ptsz,
    cuGraphMemAllocNodeGetParams, cuGraphMemFreeNodeGetParams, cuGraphMemcpyNodeGetParams,
    cuGraphMemcpyNodeSetParams, cuGraphMemsetNodeGetParams, cuGraphNodeGetDependentNodes,
    cuGraphNodeGetDependentNodes_v2, cuGraphNodeSetParams, cuGraphReleaseUserObject,
    cuGraphRetainUserObject, cuGraphUpload_ptsz, cuGraphicsEGLRegisterImage,
    cuGraphicsGLRegisterBuffer, cuGraphicsGLRegisterImage, cuGraphicsMapResources,
    cuGraphicsMapResources_ptsz, cuGraphicsResourceGetMappedEglFrame,
    cuGraphicsResourceGetMappedMipmappedArray, cuGraphicsResourceGetMappedPointer,
    cuGraphicsResourceGetMappedPointer_v2, cuGraphicsResourceSetMapFlags,
    cuGraphicsResourceSetMapFlags_v2, cuGraphicsSubResourceGetMappedArray, cuGraphicsUnmapResources,
    cuGraphicsUnmapResources_ptsz, cuGraphicsUnregisterResource,
    cuGraphicsVDPAURegisterOutputSurface, cuGraphicsVDPAURegisterVideoSurface, cuGreenCtxCreate,
    cuGreenCtxDestroy, cuGreenCtxGetDevResource, cuGreenCtxGetId, cuGreenCtxRecordEvent,
    cuGreenCtxStreamCreate, cuGreenCtxWaitEvent, cuImportExternalMemory, cuImportExternalSemaphore,
    cuKernelGetLibrary, cuKernelGetParamInfo, cuLaunch,
    cuLaunchCooperativeKernelMultiDevice, cuLaunchCooperativeKernel_ptsz, cuLaunchGrid,
    cuLaunchGridAsync, cuLaunchHostFunc_ptsz, cuLaunchKernelEx_ptsz, cuLaunchKernel_ptsz,
    cuLibraryEnumerateKernels, cuLibraryGetKernelCount, cuLibraryGetManaged,
    cuLibraryGetUnifiedFunction, cuLibraryLoadFromFile, cuLinkAddData, cuLinkAddFile, cuLinkCreate,
    cuLogsCurrent, cuLogsDumpToFile, cuLogsDumpToMemory, cuLogsRegisterCallback,
    cuLogsUnregisterCallback, cuMemAlloc,
    cuMemAllocAsync_ptsz, cuMemAllocFromPoolAsync_ptsz, cuMemAllocHost, cuMemAllocPitch,
    cuMemBatchDecompressAsync, cuMemBatchDecompressAsync_ptsz, cuMemDiscardAndPrefetchBatchAsync,
    cuMemDiscardAndPrefetchBatchAsync_ptsz,
    cuMemDiscardBatchAsync, cuMemDiscardBatchAsync_ptsz, cuMemFree,
    cuMemFreeAsync_ptsz, cuMemGetAddressRange, cuMemGetAttribute, cuMemGetAttribute_v2,
    cuMemGetDefaultMemPool, cuMemGetHandleForAddressRange, cuMemGetInfo, cuMemGetMemPool,
    cuMemHostGetDevicePointer, cuMemHostRegister, cuMemMapArrayAsync, cuMemMapArrayAsync_ptsz,
    cuMemPrefetchAsync_ptsz, cuMemPrefetchAsync_v2_ptsz, cuMemPrefetchBatchAsync,
    cuMemPrefetchBatchAsync_ptsz, cuMemRangeGetAttribute, cuMemRangeGetAttributes, cuMemSetMemPool,
    cuMemcpy2D,
    cuMemcpy2DAsync, cuMemcpy2DAsync_v2_ptsz, cuMemcpy2DUnaligned, cuMemcpy2DUnaligned_v2_ptds,
    cuMemcpy2D_v2_ptds, cuMemcpy3D, cuMemcpy3DAsync, cuMemcpy3DAsync_v2_ptsz, cuMemcpy3DBatchAsync,
    cuMemcpy3DBatchAsync_ptsz, cuMemcpy3DBatchAsync_v2, cuMemcpy3DBatchAsync_v2_ptsz,
    cuMemcpy3DPeer, cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync_ptsz, cuMemcpy3DPeer_ptds,
    cuMemcpy3D_v2_ptds, cuMemcpyAsync_ptsz, cuMemcpyAtoA, cuMemcpyAtoA_v2, cuMemcpyAtoA_v2_ptds,
    cuMemcpyAtoD, cuMemcpyAtoD_v2_ptds, cuMemcpyAtoH, cuMemcpyAtoHAsync, cuMemcpyAtoHAsync_v2,
    cuMemcpyAtoHAsync_v2_ptsz, cuMemcpyAtoH_v2_ptds, cuMemcpyBatchAsync, cuMemcpyBatchAsync_ptsz,
    cuMemcpyBatchAsync_v2, cuMemcpyBatchAsync_v2_ptsz, cuMemcpyDtoA, cuMemcpyDtoA_v2_ptds,
    cuMemcpyDtoD, cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2_ptsz, cuMemcpyDtoD_v2_ptds, cuMemcpyDtoH,
    cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2_ptsz, cuMemcpyDtoH_v2_ptds, cuMemcpyHtoA,
    cuMemcpyHtoAAsync, cuMemcpyHtoAAsync_v2, cuMemcpyHtoAAsync_v2_ptsz, cuMemcpyHtoA_v2_ptds,
    cuMemcpyHtoD, cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2_ptsz, cuMemcpyHtoD_v2_ptds,
    cuMemcpyPeerAsync_ptsz, cuMemcpyPeer_ptds, cuMemcpy_ptds, cuMemsetD16,
    cuMemsetD16Async_ptsz, cuMemsetD16_v2_ptds, cuMemsetD2D16, cuMemsetD2D16Async,
    cuMemsetD2D16Async_ptsz, cuMemsetD2D16_v2, cuMemsetD2D16_v2_ptds, cuMemsetD2D32,
    cuMemsetD2D32Async, cuMemsetD2D32Async_ptsz, cuMemsetD2D32_v2, cuMemsetD2D32_v2_ptds,
    cuMemsetD2D8, cuMemsetD2D8Async, cuMemsetD2D8Async_ptsz, cuMemsetD2D8_v2, cuMemsetD2D8_v2_ptds,
    cuMemsetD32, cuMemsetD32Async_ptsz, cuMemsetD32_v2_ptds, cuMemsetD8, cuMemsetD8Async_ptsz,
    cuMemsetD8_v2_ptds,
    cuMipmappedArrayGetMemoryRequirements, cuMipmappedArrayGetSparseProperties,
    cuModuleEnumerateFunctions, cuModuleGetFunctionCount, cuModuleGetGlobal, cuModuleGetSurfRef,
    cuModuleGetTexRef, cuMulticastAddDevice, cuMulticastBindAddr, cuMulticastBindMem,
    cuMulticastCreate, cuMulticastGetGranularity, cuMulticastUnbind,
    cuOccupancyAvailableDynamicSMemPerBlock, cuOccupancyMaxActiveClusters,
    cuOccupancyMaxPotentialBlockSizeWithFlags, cuOccupancyMaxPotentialClusterSize, cuParamSetSize,
    cuParamSetTexRef, cuParamSetf, cuParamSeti, cuParamSetv, cuPointerGetAttributes,
    cuPointerSetAttribute, cuProfilerInitialize, cuSignalExternalSemaphoresAsync,
    cuSignalExternalSemaphoresAsync_ptsz, cuStreamAddCallback, cuStreamAddCallback_ptsz,
    cuStreamAttachMemAsync_ptsz, cuStreamBatchMemOp, cuStreamBatchMemOp_ptsz, cuStreamBatchMemOp_v2,
    cuStreamBatchMemOp_v2_ptsz, cuStreamBeginCapture, cuStreamBeginCaptureToGraph,
    cuStreamBeginCaptureToGraph_ptsz, cuStreamBeginCapture_ptsz, cuStreamBeginCapture_v2_ptsz,
    cuStreamCopyAttributes, cuStreamCopyAttributes_ptsz, cuStreamEndCapture_ptsz,
    cuStreamGetAttribute, cuStreamGetAttribute_ptsz, cuStreamGetCaptureInfo,
    cuStreamGetCaptureInfo_ptsz, cuStreamGetCaptureInfo_v2_ptsz, cuStreamGetCaptureInfo_v3_ptsz,
    cuStreamGetCtx_ptsz, cuStreamGetCtx_v2_ptsz, cuStreamGetDevice_ptsz, cuStreamGetFlags_ptsz,
    cuStreamGetGreenCtx, cuStreamGetId_ptsz,
    cuStreamGetPriority_ptsz, cuStreamIsCapturing_ptsz, cuStreamQuery_ptsz, cuStreamSetAttribute,
    cuStreamSetAttribute_ptsz, cuStreamSynchronize_ptsz, cuStreamUpdateCaptureDependencies,
    cuStreamUpdateCaptureDependencies_ptsz, cuStreamUpdateCaptureDependencies_v2,
    cuStreamUpdateCaptureDependencies_v2_ptsz, cuStreamWaitEvent_ptsz, cuStreamWaitValue32,
    cuStreamWaitValue32_ptsz, cuStreamWaitValue32_v2, cuStreamWaitValue32_v2_ptsz,
    cuStreamWaitValue64, cuStreamWaitValue64_ptsz, cuStreamWaitValue64_v2,
    cuStreamWaitValue64_v2_ptsz, cuStreamWriteValue32, cuStreamWriteValue32_ptsz,
    cuStreamWriteValue32_v2, cuStreamWriteValue32_v2_ptsz, cuStreamWriteValue64,
    cuStreamWriteValue64_ptsz, cuStreamWriteValue64_v2, cuStreamWriteValue64_v2_ptsz,
    cuSurfObjectGetResourceDesc, cuSurfRefGetArray, cuSurfRefSetArray, cuTensorMapEncodeIm2col,
    cuTensorMapEncodeIm2colWide, cuTensorMapEncodeTiled, cuTensorMapReplaceAddress,
    cuTexObjectGetResourceDesc, cuTexObjectGetResourceViewDesc, cuTexObjectGetTextureDesc,
    cuTexRefCreate, cuTexRefDestroy, cuTexRefGetAddress, cuTexRefGetAddressMode,
    cuTexRefGetAddress_v2, cuTexRefGetArray, cuTexRefGetBorderColor, cuTexRefGetFilterMode,
    cuTexRefGetFlags, cuTexRefGetFormat, cuTexRefGetMaxAnisotropy, cuTexRefGetMipmapFilterMode,
    cuTexRefGetMipmapLevelBias, cuTexRefGetMipmapLevelClamp, cuTexRefGetMipmappedArray,
    cuTexRefSetAddress, cuTexRefSetAddress2D, cuTexRefSetAddress2D_v2, cuTexRefSetAddress2D_v3,
    cuTexRefSetAddressMode, cuTexRefSetAddress_v2, cuTexRefSetArray, cuTexRefSetBorderColor,
    cuTexRefSetFilterMode, cuTexRefSetFlags, cuTexRefSetFormat, cuTexRefSetMaxAnisotropy,
    cuTexRefSetMipmapFilterMode, cuTexRefSetMipmapLevelBias, cuTexRefSetMipmapLevelClamp,
    cuTexRefSetMipmappedArray, cuThreadExchangeStreamCaptureMode, cuUserObjectCreate,
    cuUserObjectRelease, cuUserObjectRetain, cuVDPAUCtxCreate, cuVDPAUCtxCreate_v2,
    cuVDPAUGetDevice, cuWaitExternalSemaphoresAsync, cuWaitExternalSemaphoresAsync_ptsz,
}
