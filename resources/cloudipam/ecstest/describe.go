// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ecstest

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
)

// Bounds of the APIs.
const (
	vpcPage       = 50
	ecsPage       = 100
	interfacePage = 500
	tagPage       = 50
	maxIDs        = 100
	maxTags       = 20
)

// numbered is a page of a list whose pages have numbers.
func (c *Cloud) numbered(r request, all []any) (items []any, body map[string]any, err *refusal) {
	size, err := r.number("PageSize", 10, vpcPage)
	if err != nil {
		return nil, nil, err
	}
	number, err := r.number("PageNumber", 1, 1<<20)
	if err != nil {
		return nil, nil, err
	}
	if c.PageSize > 0 {
		size = min(size, c.PageSize)
	}
	from := min((number-1)*size, len(all))
	return all[from:min(from+size, len(all))], map[string]any{"TotalCount": len(all), "PageNumber": number, "PageSize": size}, nil
}

// row is an item of a list, which begins after its key.
type row struct {
	key  string
	item any
}

// chained is a page of a list of which each page names the next one.
func (c *Cloud) chained(r request, most int, all []row) (items []any, body map[string]any, err *refusal) {
	size, err := r.number("MaxResults", 10, most)
	if err != nil {
		return nil, nil, err
	}
	if most == tagPage {
		size = tagPage
	}
	if c.PageSize > 0 {
		size = min(size, c.PageSize)
	}
	items, body = []any{}, map[string]any{"NextToken": ""}
	for _, of := range all {
		switch {
		case of.key <= r.text("NextToken"):
		case len(items) == size:
			return items, body, nil
		default:
			items, body["NextToken"] = append(items, of.item), of.key
		}
	}
	body["NextToken"] = ""
	return items, body, nil
}

type object = map[string]any

func ecsTags(tags map[string]string) object { return tagsAs(tags, "TagKey", "TagValue") }

func tagsAs(tags map[string]string, key, value string) object {
	list := []object{}
	for _, of := range slices.Sorted(maps.Keys(tags)) {
		list = append(list, object{key: of, value: tags[of]})
	}
	return object{"Tag": list}
}

func (c *Cloud) describeVpcs(r request) (map[string]any, *refusal) {
	var all []any
	for _, id := range slices.Sorted(maps.Keys(c.vpcs)) {
		if v := c.vpcs[id]; r.text("VpcId") == "" || r.text("VpcId") == id {
			all = append(all, object{
				"VpcId": id, "CidrBlock": v.cidr, "Ipv6CidrBlock": v.ipv6, "RegionId": c.Region, "Status": available, "Tags": tagsAs(nil, "Key", "Value"),
				"SecondaryCidrBlocks": object{"SecondaryCidrBlock": v.others},
			})
		}
	}
	items, body, err := c.numbered(r, all)
	if err == nil {
		body["Vpcs"] = object{"Vpc": items}
	}
	return body, err
}

func (c *Cloud) describeVSwitches(r request) (map[string]any, *refusal) {
	var all []any
	for _, id := range slices.Sorted(maps.Keys(c.vSwitches)) {
		if s := c.vSwitches[id]; r.text("VpcId") == "" || r.text("VpcId") == s.vpc {
			all = append(all, object{
				"VSwitchId": id, "VpcId": s.vpc, "ZoneId": s.zone, "CidrBlock": s.cidr.String(), "Ipv6CidrBlock": "", "Status": available,
				"AvailableIpAddressCount": s.free(), "Tags": tagsAs(s.tags, "Key", "Value"),
			})
		}
	}
	items, body, err := c.numbered(r, all)
	if err == nil {
		body["VSwitches"] = object{"VSwitch": items}
	}
	return body, err
}

func (c *Cloud) describeSecurityGroups(r request) (map[string]any, *refusal) {
	var all []row
	for _, id := range slices.Sorted(maps.Keys(c.groups)) {
		if g := c.groups[id]; r.text("VpcId") == "" || r.text("VpcId") == g.vpc {
			all = append(all, row{id, object{"SecurityGroupId": id, "VpcId": g.vpc, "SecurityGroupType": "normal", "Tags": ecsTags(g.tags)}})
		}
	}
	items, body, err := c.chained(r, ecsPage, all)
	if err == nil {
		body["SecurityGroups"] = object{"SecurityGroup": items}
	}
	return body, err
}

func (c *Cloud) describeInstanceTypes(r request) (map[string]any, *refusal) {
	var all []row
	for _, id := range slices.Sorted(maps.Keys(c.types)) {
		of := c.types[id]
		all = append(all, row{id, object{
			"InstanceTypeId": id, "EniQuantity": of.Adapters, "EniPrivateIpAddressQuantity": of.IPv4, "EniIpv6AddressQuantity": 1, "EniTotalQuantity": of.Adapters,
		}})
	}
	items, body, err := c.chained(r, ecsPage, all)
	if err == nil {
		body["InstanceTypes"] = object{"InstanceType": items}
	}
	return body, err
}

func (c *Cloud) describeInstances(r request) (map[string]any, *refusal) {
	var ids []string
	if text := r.text("InstanceIds"); text != "" && json.Unmarshal([]byte(text), &ids) != nil || len(ids) > maxIDs {
		return nil, invalid("InstanceIds")
	}
	var all []row
	for _, id := range slices.Sorted(maps.Keys(c.instances)) {
		i := c.instances[id]
		if ids != nil && !slices.Contains(ids, id) {
			continue
		}
		nics := []object{}
		for _, e := range c.sortedENIs() {
			if e.instance == id {
				nics = append(nics, object{"NetworkInterfaceId": e.id, "Type": e.kind, "MacAddress": e.mac, "PrimaryIpAddress": e.primary})
			}
		}
		all = append(all, row{id, object{
			"InstanceId": id, "InstanceType": i.kind, "Status": i.state, "Tags": ecsTags(i.tags), "NetworkInterfaces": object{"NetworkInterface": nics},
		}})
	}
	items, body, err := c.chained(r, ecsPage, all)
	if err == nil {
		body["Instances"] = object{"Instance": items}
	}
	return body, err
}

func (c *Cloud) listTagResources(r request) (map[string]any, *refusal) {
	tags := r.tags()
	if r.text("ResourceType") != "instance" || len(tags) == 0 || len(tags) > maxTags {
		return nil, invalid("Tag.N")
	}
	var all []row
	for _, id := range slices.Sorted(maps.Keys(c.instances)) {
		i := c.instances[id]
		if !hasTags(i.tags, tags) {
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(tags)) {
			all = append(all, row{id + "/" + key, object{"ResourceId": id, "ResourceType": "instance", "TagKey": key, "TagValue": tags[key]}})
		}
	}
	items, body, err := c.chained(r, tagPage, all)
	if err == nil {
		body["TagResources"] = object{"TagResource": items}
	}
	return body, err
}

func hasTags(tags, wanted map[string]string) bool {
	for key, value := range wanted {
		if of, has := tags[key]; !has || of != value {
			return false
		}
	}
	return true
}

func (c *Cloud) sortedENIs() (list []*eni) {
	shown := c.shown()
	for _, id := range slices.Sorted(maps.Keys(shown)) {
		list = append(list, shown[id])
	}
	return list
}

// statusOf is the state of an interface: one that is being attached is, after a while.
func (c *Cloud) statusOf(e *eni) string {
	if e.status == attaching && c.requests >= e.attachedAt {
		return inUse
	}
	return e.status
}

func (c *Cloud) describeNetworkInterfaces(r request) (map[string]any, *refusal) {
	ids := r.list("NetworkInterfaceId")
	if len(ids) > maxIDs {
		return nil, &refusal{http.StatusBadRequest, "InvalidParameter", "The number of ids exceeds the limit."}
	}
	var all []row
	for _, e := range c.sortedENIs() {
		vpcID := VPC
		if s := c.vSwitches[e.vSwitch]; s != nil {
			vpcID = s.vpc
		}
		switch {
		case len(ids) > 0 && !slices.Contains(ids, e.id):
		case r.text("InstanceId") != "" && r.text("InstanceId") != e.instance:
		case r.text("VpcId") != "" && r.text("VpcId") != vpcID:
		default:
			all = append(all, row{e.id, c.item(e, vpcID)})
		}
	}
	items, body, err := c.chained(r, interfacePage, all)
	if err == nil {
		body["NetworkInterfaceSets"] = object{"NetworkInterfaceSet": items}
	}
	return body, err
}

func (c *Cloud) item(e *eni, vpcID string) object {
	sets := []object{{"PrivateIpAddress": e.primary, "Primary": true}}
	for _, a := range slices.Concat(e.secondary, e.garbage) {
		sets = append(sets, object{"PrivateIpAddress": a, "Primary": false})
	}
	zone := c.Zone
	if s := c.vSwitches[e.vSwitch]; s != nil {
		zone = s.zone
	}
	return object{
		"NetworkInterfaceId": e.id, "MacAddress": e.mac, "Type": e.kind, "Status": c.statusOf(e), "InstanceId": e.instance, "VpcId": vpcID, "ZoneId": zone,
		"VSwitchId": e.vSwitch, "PrivateIpAddress": e.primary, "PrivateIpSets": object{"PrivateIpSet": sets}, "Description": e.description,
		"SecurityGroupIds": object{"SecurityGroupId": e.groups}, "Tags": ecsTags(e.tags),
	}
}
