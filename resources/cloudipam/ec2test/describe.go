// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ec2test

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

type tagItem struct {
	Key   string `xml:"key"`
	Value string `xml:"value"`
}

func tagItems(tags map[string]string) (list []tagItem) {
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		list = append(list, tagItem{key, tags[key]})
	}
	return list
}

// fields are what filters select by.
type fields map[string][]string

func (f fields) withTags(tags map[string]string) fields {
	for key, value := range tags {
		f["tag:"+key] = []string{value}
		f["tag-key"] = append(f["tag-key"], key)
	}
	return f
}

// maxFilterValues is how many values all filters can have together.
const maxFilterValues = 200

// matches reports whether something has fields that all filters select.
func (r request) matches(f fields, known ...string) (bool, *Error) {
	total := 0
	for n := 1; ; n++ {
		name := r.text(fmt.Sprintf("Filter.%d.Name", n))
		if name == "" {
			return true, nil
		}
		if _, has := f[name]; !has && !strings.HasPrefix(name, "tag:") && !slices.Contains(known, name) && name != "tag-key" {
			return false, invalid("The filter '%s' is invalid", name)
		}
		values := r.list(fmt.Sprintf("Filter.%d.Value", n))
		if total += len(values); total > maxFilterValues {
			return false, &Error{Code: "FilterLimitExceeded", Message: fmt.Sprintf("The maximum number of filter values specified on a single call is %d", maxFilterValues)}
		}
		if !slices.ContainsFunc(f[name], func(has string) bool {
			return slices.ContainsFunc(values, func(wanted string) bool {
				ok, _ := path.Match(strings.ReplaceAll(wanted, "/", "\x00"), strings.ReplaceAll(has, "/", "\x00"))
				return ok
			})
		}) {
			return false, nil
		}
	}
}

// paged returns the things that filters select, one page of them, in the order of their ids.
func paged[T, X any](r request, all map[string]T, most int, of func(T) (fields, X)) (list []X, next string, err *Error) {
	size, err := r.number("MaxResults")
	if err != nil {
		return nil, "", err
	}
	if r.text("MaxResults") != "" && (size < 5 || size > most) {
		return nil, "", invalid("Value ( %d ) for parameter maxResults is invalid. Expecting a value between 5 and %d.", size, most)
	}
	after := ""
	if token := r.text("NextToken"); token != "" {
		text, bad := base64.URLEncoding.DecodeString(token)
		if bad != nil || !strings.HasPrefix(string(text), tokenOf(r)) {
			return nil, "", &Error{Code: "InvalidNextToken", Message: "The token '" + token + "' is invalid"}
		}
		after = strings.TrimPrefix(string(text), tokenOf(r))
	}
	last := ""
	for _, id := range slices.Sorted(maps.Keys(all)) {
		f, item := of(all[id])
		ok, err := r.matches(f, knownFilters...)
		switch {
		case err != nil:
			return nil, "", err
		case !ok || id <= after:
			continue
		case size > 0 && len(list) == size:
			return list, base64.URLEncoding.EncodeToString([]byte(tokenOf(r) + last)), nil
		}
		list, last = append(list, item), id
	}
	if len(all) == 0 { // filters are checked nevertheless
		if _, err := r.matches(fields{}, knownFilters...); err != nil {
			return nil, "", err
		}
	}
	return list, "", nil
}

// knownFilters are those that things may not have a field for.
var knownFilters = []string{
	"attachment.instance-id", "attachment.status", "subnet-id", "vpc-id", "status", "private-ip-address", "network-interface-id", "resource-type", "resource-id", "key",
	"addresses.private-ip-address", "association.subnet-id", "association.main", "route-table-id", "instance-id", "instance-state-name", "group-id", "group-name", "description",
}

// tokenOf ties a token to the filters of its request.
func tokenOf(r request) string {
	var filters []string
	for key := range r.values {
		if strings.HasPrefix(key, "Filter.") {
			filters = append(filters, key+"="+r.text(key))
		}
	}
	slices.Sort(filters)
	return r.text("Action") + "?" + strings.Join(filters, "&") + "#"
}

type nextToken struct {
	RequestID string `xml:"requestId"`
	NextToken string `xml:"nextToken,omitempty"`
}

func withToken(next string) nextToken {
	return nextToken{"00000000-0000-4000-8000-000000000000", next}
}

func (c *Cloud) describeVpcs(r request) (any, *Error) {
	type cidr struct {
		AssociationID string `xml:"associationId"`
		CIDR          string `xml:"cidrBlock"`
		State         string `xml:"cidrBlockState>state"`
	}
	type item struct {
		ID    string    `xml:"vpcId"`
		State string    `xml:"state"`
		CIDR  string    `xml:"cidrBlock"`
		CIDRs []cidr    `xml:"cidrBlockAssociationSet>item"`
		Tags  []tagItem `xml:"tagSet>item"`
	}
	list, next, err := paged(r, c.vpcs, 1000, func(v *vpc) (fields, item) {
		i := item{v.id, "available", v.cidr, nil, tagItems(v.tags)}
		for n, of := range append([]string{v.cidr}, v.cidrs...) {
			i.CIDRs = append(i.CIDRs, cidr{fmt.Sprintf("vpc-cidr-assoc-%d", n), of, "associated"})
		}
		return fields{"vpc-id": {v.id}}.withTags(v.tags), i
	})
	return struct {
		nextToken
		Items []item `xml:"vpcSet>item"`
	}{withToken(next), list}, err
}

func (c *Cloud) describeSubnets(r request) (any, *Error) {
	type item struct {
		ID    string    `xml:"subnetId"`
		State string    `xml:"state"`
		VPC   string    `xml:"vpcId"`
		CIDR  string    `xml:"cidrBlock"`
		IPv6  []string  `xml:"ipv6CidrBlockAssociationSet>item>ipv6CidrBlock,omitempty"`
		Free  int       `xml:"availableIpAddressCount"`
		Zone  string    `xml:"availabilityZone"`
		Tags  []tagItem `xml:"tagSet>item"`
	}
	list, next, err := paged(r, c.subnets, 1000, func(s *subnet) (fields, item) {
		return fields{"subnet-id": {s.id}, "vpc-id": {s.vpc}}.withTags(s.tags),
			item{s.id, "available", s.vpc, s.cidr.String(), s.blocksOfIPv6(), s.free(), s.zone, tagItems(s.tags)}
	})
	return struct {
		nextToken
		Items []item `xml:"subnetSet>item"`
	}{withToken(next), list}, err
}

func (c *Cloud) describeSecurityGroups(r request) (any, *Error) {
	type item struct {
		ID   string    `xml:"groupId"`
		Name string    `xml:"groupName"`
		VPC  string    `xml:"vpcId"`
		Tags []tagItem `xml:"tagSet>item"`
	}
	list, next, err := paged(r, c.groups, 1000, func(g *group) (fields, item) {
		return fields{"group-id": {g.id}, "vpc-id": {g.vpc}}.withTags(g.tags), item{g.id, GroupName(g.id), g.vpc, tagItems(g.tags)}
	})
	return struct {
		nextToken
		Items []item `xml:"securityGroupInfo>item"`
	}{withToken(next), list}, err
}

func (c *Cloud) describeNetworkInterfaces(r request) (any, *Error) {
	shown := c.shown()
	if ids := r.list("NetworkInterfaceId"); len(ids) > 0 {
		if r.text("MaxResults") != "" {
			return nil, &Error{Code: "InvalidParameterCombination", Message: "The parameter maxResults cannot be used with the parameter networkInterfaceIds"}
		}
		some := map[string]*eni{}
		for _, id := range ids {
			if shown[id] == nil {
				return nil, notFound("NetworkInterfaceID", id)
			}
			some[id] = shown[id]
		}
		shown = some
	}
	list, next, err := paged(r, shown, 1000, func(e *eni) (fields, eniItem) {
		f := fields{
			"network-interface-id": {e.id}, "subnet-id": {e.subnet}, "vpc-id": {c.vpcOf(e)}, "private-ip-address": {e.primary}, "status": {e.state()},
			"addresses.private-ip-address": append(slices.Clone(e.singles), e.primary), "description": {e.description},
			"group-id": e.groups,
		}
		for _, g := range e.groups {
			f["group-name"] = append(f["group-name"], GroupName(g))
		}
		if e.instance != "" {
			f["attachment.instance-id"], f["attachment.status"] = []string{e.instance}, []string{e.status}
		}
		return f.withTags(e.tags), c.item(e)
	})
	return struct {
		nextToken
		Items []eniItem `xml:"networkInterfaceSet>item"`
	}{withToken(next), list}, err
}

// eniItem is an interface in responses.
type eniItem struct {
	ID          string           `xml:"networkInterfaceId"`
	Subnet      string           `xml:"subnetId"`
	VPC         string           `xml:"vpcId"`
	Zone        string           `xml:"availabilityZone"`
	Description string           `xml:"description"`
	Status      string           `xml:"status"`
	MAC         string           `xml:"macAddress"`
	Primary     string           `xml:"privateIpAddress"`
	Groups      []groupItem      `xml:"groupSet>item"`
	Attachment  *attachmentItem  `xml:"attachment"`
	Tags        []tagItem        `xml:"tagSet>item"`
	Addresses   []addressItem    `xml:"privateIpAddressesSet>item"`
	Prefixes    []prefixItem     `xml:"ipv4PrefixSet>item"`
	IPv6        []ipv6Item       `xml:"ipv6PrefixSet>item"`
	Association *associationItem `xml:"association"`
}

type groupItem struct {
	ID   string `xml:"groupId"`
	Name string `xml:"groupName"`
}

type attachmentItem struct {
	ID                  string `xml:"attachmentId"`
	Instance            string `xml:"instanceId"`
	Owner               string `xml:"instanceOwnerId"`
	Index               int    `xml:"deviceIndex"`
	Card                int    `xml:"networkCardIndex"`
	Status              string `xml:"status"`
	DeleteOnTermination bool   `xml:"deleteOnTermination"`
}

type addressItem struct {
	Address     string           `xml:"privateIpAddress"`
	Primary     bool             `xml:"primary"`
	Association *associationItem `xml:"association"`
}

type associationItem struct {
	Public string `xml:"publicIp"`
}

type prefixItem struct {
	Prefix string `xml:"ipv4Prefix"`
}

type ipv6Item struct {
	Prefix string `xml:"ipv6Prefix"`
}

// state is "available" or "in-use".
func (e *eni) state() string {
	if e.instance == "" {
		return "available"
	}
	return "in-use"
}

func (c *Cloud) vpcOf(e *eni) string {
	if s := c.subnets[e.subnet]; s != nil {
		return s.vpc
	}
	return ""
}

// show has a description show what the interface does not have.
func (i *eniItem) show(texts []string) {
	for _, text := range texts {
		switch isPrefix := strings.Contains(text, "/"); {
		case isPrefix && strings.Contains(text, ":"):
			i.IPv6 = append(i.IPv6, ipv6Item{text})
		case isPrefix:
			i.Prefixes = append(i.Prefixes, prefixItem{text})
		default:
			i.Addresses = append(i.Addresses, addressItem{text, false, nil})
		}
	}
}

func (c *Cloud) item(e *eni) eniItem {
	i := eniItem{
		ID: e.id, Subnet: e.subnet, VPC: c.vpcOf(e), Description: e.description, Status: e.state(), MAC: e.mac, Primary: e.primary, Tags: tagItems(e.tags),
		Addresses: []addressItem{{e.primary, true, c.association(e.primary)}}, Association: c.association(e.primary),
	}
	if s := c.subnets[e.subnet]; s != nil {
		i.Zone = s.zone
	}
	for _, g := range e.groups {
		i.Groups = append(i.Groups, groupItem{g, GroupName(g)})
	}
	for _, a := range e.singles {
		i.Addresses = append(i.Addresses, addressItem{a, false, c.association(a)})
	}
	i.show(c.odd[e.id])
	for _, p := range e.prefixes {
		i.Prefixes = append(i.Prefixes, prefixItem{p})
	}
	for _, p := range e.ipv6 {
		i.IPv6 = append(i.IPv6, ipv6Item{p})
	}
	if e.instance != "" {
		i.Attachment = &attachmentItem{e.attachment, e.instance, "123456789012", e.index, e.card, e.status, e.deletedWithInstance}
	}
	return i
}

func (c *Cloud) association(private string) *associationItem {
	if public, is := c.public[private]; is {
		return &associationItem{public}
	}
	return nil
}

// interfacesOf are those of an instance, as far as a description of the instance has them.
func (c *Cloud) interfacesOf(instance string) (list []instanceENI) {
	shown := c.shown()
	for _, id := range slices.Sorted(maps.Keys(shown)) {
		if e := shown[id]; e.instance == instance {
			i := c.item(e)
			list = append(list, instanceENI{i.ID, i.Primary, i.Addresses})
		}
	}
	return list
}

type instanceENI struct {
	ID        string        `xml:"networkInterfaceId"`
	Primary   string        `xml:"privateIpAddress"`
	Addresses []addressItem `xml:"privateIpAddressesSet>item"`
}

func (c *Cloud) describeInstances(r request) (any, *Error) {
	type of struct {
		ID         string        `xml:"instanceId"`
		State      string        `xml:"instanceState>name"`
		Type       string        `xml:"instanceType"`
		Tags       []tagItem     `xml:"tagSet>item"`
		Interfaces []instanceENI `xml:"networkInterfaceSet>item"`
	}
	type item struct {
		ID        string `xml:"reservationId"`
		Owner     string `xml:"ownerId"`
		Instances []of   `xml:"instancesSet>item"`
	}
	list, next, err := paged(r, c.instances, 1000, func(i *instance) (fields, item) {
		return fields{"instance-id": {i.id}, "instance-state-name": {i.state}}.withTags(i.tags),
			item{"r-" + i.id, "123456789012", []of{{i.id, i.state, i.kind, tagItems(i.tags), c.interfacesOf(i.id)}}}
	})
	return struct {
		nextToken
		Items []item `xml:"reservationSet>item"`
	}{withToken(next), list}, err
}

func (c *Cloud) describeInstanceTypes(r request) (any, *Error) {
	type card struct {
		Index      int `xml:"networkCardIndex"`
		Interfaces int `xml:"maximumNetworkInterfaces"`
	}
	type item struct {
		Name       string `xml:"instanceType"`
		Hypervisor string `xml:"hypervisor,omitempty"`
		BareMetal  bool   `xml:"bareMetal"`
		Interfaces int    `xml:"networkInfo>maximumNetworkInterfaces"`
		IPv4       int    `xml:"networkInfo>ipv4AddressesPerInterface"`
		IPv6       int    `xml:"networkInfo>ipv6AddressesPerInterface"`
		Cards      []card `xml:"networkInfo>networkCards>item"`
	}
	type named struct {
		name string
		Type
	}
	all := map[string]named{}
	for name, t := range c.types {
		all[name] = named{name, t}
	}
	for _, name := range r.list("InstanceType") {
		if _, exists := all[name]; !exists {
			return nil, &Error{Code: "InvalidInstanceType", Message: fmt.Sprintf("The following supplied instance types do not exist: [%s]", name)}
		}
	}
	list, next, err := paged(r, all, 100, func(t named) (fields, item) {
		i := item{t.name, t.Hypervisor, t.Hypervisor == "", t.Interfaces, t.IPv4, t.IPv4, nil}
		for n := range max(1, t.Cards) {
			i.Cards = append(i.Cards, card{n, t.perCard()})
		}
		return fields{"instance-type": {t.name}}, i
	})
	return struct {
		nextToken
		Items []item `xml:"instanceTypeSet>item"`
	}{withToken(next), list}, err
}

func (c *Cloud) describeTags(r request) (any, *Error) {
	type item struct {
		Resource string `xml:"resourceId"`
		Type     string `xml:"resourceType"`
		Key      string `xml:"key"`
		Value    string `xml:"value"`
	}
	all := map[string]item{}
	for _, i := range c.instances {
		for key, value := range i.tags {
			all[i.id+"/"+key] = item{i.id, "instance", key, value}
		}
	}
	list, next, err := paged(r, all, 1000, func(i item) (fields, item) {
		return fields{"resource-id": {i.Resource}, "resource-type": {i.Type}, "key": {i.Key}, "value": {i.Value}}, i
	})
	slices.SortFunc(list, func(a, b item) int { return cmp.Compare(a.Key, b.Key) })
	return struct {
		nextToken
		Items []item `xml:"tagSet>item"`
	}{withToken(next), list}, err
}
