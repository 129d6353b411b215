// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam

import "time"

// Config are the options that all clouds share.
type Config struct {
	ParallelAllocWorkers int     `flag:"parallel-alloc-workers" usage:"CiliumNodes that are processed at once"`
	LimitIPAMAPIQPS      float64 `flag:"limit-ipam-api-qps" usage:"Calls per second to the API of the cloud" min:"0.001"`
	LimitIPAMAPIBurst    int     `flag:"limit-ipam-api-burst" usage:"Calls at once to the API of the cloud" min:"1"`
	ExcessIPReleaseDelay int     `flag:"excess-ip-release-delay" usage:"Seconds for which an address must be surplus before its release begins" min:"0"`
	// InstanceTagsFilter is for providers of clouds whose instances have tags.
	InstanceTagsFilter map[string]string `flag:"instance-tags-filter" usage:"Tags of the instances that are read"`
	// ReleaseExcessIPs is set by providers from options of their own, by cell.Decorate.
	ReleaseExcessIPs bool `flag:"-"`
}

var defaultConfig = Config{ParallelAllocWorkers: 50, LimitIPAMAPIQPS: 4, LimitIPAMAPIBurst: 20, ExcessIPReleaseDelay: 180}

func (c Config) delay() time.Duration { return time.Duration(c.ExcessIPReleaseDelay) * time.Second }
