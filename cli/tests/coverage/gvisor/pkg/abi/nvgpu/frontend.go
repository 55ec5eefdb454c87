// Two structs, in the form that gVisor has them.
package nvgpu

import "structs"

const NV_ESC_RM_FREE = 0x29

// OTHER_FREE is no constant of the driver, and handled nowhere.
const OTHER_FREE = 0x29

type Handle struct {
	_   structs.HostLayout
	Val uint32
}

// NVOS00_PARAMETERS is the parameter type of NV_ESC_RM_FREE.
type NVOS00_PARAMETERS struct {
	_             structs.HostLayout
	HRoot         Handle
	HObjectParent Handle
	HObjectOld    Handle
	Status        uint32
}
