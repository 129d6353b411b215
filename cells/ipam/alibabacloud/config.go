// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package alibabacloud

import (
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/runtime/cell"
)

// Config says where the instances of the cluster are.
type Config struct {
	AlibabaCloudRegionID         string `flag:"alibaba-cloud-region-id" usage:"Region of the nodes; empty for that of the operator's own instance metadata"`
	AlibabaCloudReleaseExcessIPs bool   `flag:"alibaba-cloud-release-excess-ips" usage:"Release addresses that nodes do not need"`
	AlibabaCloudVPCID            string `flag:"alibaba-cloud-vpc-id" usage:"VPC of the nodes; empty for that of the operator's own instance metadata"`
}

var (
	regionIDs = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)+$`)
	vpcIDs    = regexp.MustCompile(`^vpc-[A-Za-z0-9-]+$`)
)

// Validate implements the check of config structs.
func (c Config) Validate() error {
	var errs []error
	if id := c.AlibabaCloudRegionID; id != "" && !regionIDs.MatchString(id) {
		errs = append(errs, cell.Invalid("alibaba-cloud-region-id", "must be the id of a region, such as cn-hangzhou, and is %q", id))
	}
	if id := c.AlibabaCloudVPCID; id != "" && !vpcIDs.MatchString(id) {
		errs = append(errs, cell.Invalid("alibaba-cloud-vpc-id", "must be the id of a VPC, such as vpc-bp67acfmxazb4p, and is %q", id))
	}
	return errors.Join(errs...)
}

// Bounds of tags.
const (
	maxTags     = 20
	maxTagChars = 128
)

// checkFilter checks the option that clouds share.
func checkFilter(c cloudipam.Config) error {
	var errs []error
	invalid := func(format string, args ...any) {
		errs = append(errs, cell.Invalid("instance-tags-filter", format, args...))
	}
	if len(c.InstanceTagsFilter) > maxTags {
		invalid("must have at most %d tags: ECS takes no more", maxTags)
	}
	for _, key := range slices.Sorted(maps.Keys(c.InstanceTagsFilter)) {
		switch value := c.InstanceTagsFilter[key]; {
		case strings.TrimSpace(key) == "":
			invalid("must be tags of ECS, and has =%s: the key is empty", value)
		case len([]rune(key)) > maxTagChars, len([]rune(value)) > maxTagChars:
			invalid("must be tags of ECS, and has %s=%s: keys and values have at most %d characters", key, value, maxTagChars)
		}
	}
	return errors.Join(errs...)
}
