// Three versions, in the form that gVisor has them: one, the same again, and one that upstream has not published.
package nvproxy

func Init() {
	abisOnce.Do(func() {
		v535_104_05 := addUnsupportedDriverABI(535, 104, 05, func() *driverABI {
			return &driverABI{
				frontendIoctl: map[uint32]frontendIoctlHandler{
					nvgpu.NV_ESC_RM_FREE: feHandler(rmFree, compUtil),
				},
				getInfo: func() *DriverABIInfo {
					return &DriverABIInfo{
						FrontendInfos: map[uint32]IoctlInfo{
							nvgpu.NV_ESC_RM_FREE: ioctlInfo("NV_ESC_RM_FREE", nvgpu.NVOS00_PARAMETERS{}),
						},
					}
				},
			}
		})
		v550_40_07 := addDriverABI(550, 40, 7, "sum", ChecksumNoDriver, v535_104_05)
		_ = addDriverABI(580, 9999, 1, "sum", "sum", v550_40_07)
	})
}
