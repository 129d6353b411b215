// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package alibabacloud

// tag is a tag of ECS, or of a VPC.
type tag struct {
	TagKey, TagValue string
	Key, Value       string
}

// tagMap is nil for no tags.
func tagMap(list []tag) map[string]string {
	if len(list) == 0 {
		return nil
	}
	tags := make(map[string]string, len(list))
	for _, t := range list {
		if t.TagKey != "" {
			tags[t.TagKey] = t.TagValue
			continue
		}
		tags[t.Key] = t.Value
	}
	return tags
}

type tags struct{ Tag []tag }

type vpcItem struct {
	VpcID               string `json:"VpcId"`
	CidrBlock           string
	Ipv6CidrBlock       string
	SecondaryCidrBlocks struct{ SecondaryCidrBlock []string }
}

type vSwitchItem struct {
	VSwitchID               string `json:"VSwitchId"`
	VpcID                   string `json:"VpcId"`
	ZoneID                  string `json:"ZoneId"`
	CidrBlock               string
	Ipv6CidrBlock           string
	AvailableIPAddressCount int `json:"AvailableIpAddressCount"`
	Tags                    tags
}

type groupItem struct {
	SecurityGroupID string `json:"SecurityGroupId"`
	VpcID           string `json:"VpcId"`
	Tags            tags
}

type typeItem struct {
	InstanceTypeID              string `json:"InstanceTypeId"`
	EniQuantity                 int
	EniPrivateIPAddressQuantity int `json:"EniPrivateIpAddressQuantity"`
}

type interfaceItem struct {
	NetworkInterfaceID string `json:"NetworkInterfaceId"`
	MacAddress         string
	Type               string
	Status             string
	InstanceID         string `json:"InstanceId"`
	VpcID              string `json:"VpcId"`
	ZoneID             string `json:"ZoneId"`
	VSwitchID          string `json:"VSwitchId"`
	PrivateIPAddress   string `json:"PrivateIpAddress"`
	PrivateIPSets      struct {
		PrivateIPSet []privateIP `json:"PrivateIpSet"`
	} `json:"PrivateIpSets"`
	SecurityGroupIDs struct {
		SecurityGroupID []string `json:"SecurityGroupId"`
	} `json:"SecurityGroupIds"`
	Tags tags
}

type privateIP struct {
	PrivateIPAddress string `json:"PrivateIpAddress"`
	Primary          bool
}

type instanceItem struct {
	InstanceID        string `json:"InstanceId"`
	NetworkInterfaces struct {
		NetworkInterface []struct {
			NetworkInterfaceID string `json:"NetworkInterfaceId"`
		}
	}
}

type taggedItem struct {
	ResourceID string `json:"ResourceId"`
}
