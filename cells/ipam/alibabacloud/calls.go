// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package alibabacloud

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	openapi "github.com/alibabacloud-go/darabonba-openapi/v2/client"
	"github.com/alibabacloud-go/tea/dara"

	"github.com/skep-operator/skep/resources/outside"
)

// callTimeout bounds a call.
const callTimeout = time.Minute

// Operations that change something.
const (
	opCreate   = "CreateNetworkInterface"
	opAttach   = "AttachNetworkInterface"
	opDelete   = "DeleteNetworkInterface"
	opAssign   = "AssignPrivateIpAddresses"
	opUnassign = "UnassignPrivateIpAddresses"
)

// Bounds of the APIs.
const (
	vpcPage       = 50
	ecsPage       = 100
	interfacePage = 500
	maxIDs        = 100 // in a request
	maxUnassigned = 10  // addresses in a request
)

// query are the parameters of a request, but for the region.
type query map[string]string

// list adds the values of a list: Name.1, Name.2.
func (q query) list(name string, values []string) query {
	for i, v := range values {
		q[fmt.Sprintf("%s.%d", name, i+1)] = v
	}
	return q
}

// tags adds tags.
func (q query) tags(tags map[string]string) query {
	for i, key := range slices.Sorted(maps.Keys(tags)) {
		q[fmt.Sprintf("Tag.%d.Key", i+1)], q[fmt.Sprintf("Tag.%d.Value", i+1)] = key, tags[key]
	}
	return q
}

func (q query) with(name, value string) query {
	of := maps.Clone(q)
	of[name] = value
	return of
}

// read makes a call that changes nothing.
func (s *session) read(ctx context.Context, of product, operation string, q query, into any) error {
	b, err := s.begin(ctx)
	if err != nil {
		return err
	}
	return s.Server.ReadOperation(ctx, operation, func(ctx context.Context) error { return s.send(ctx, b, of, operation, q, into) })
}

// change makes a call to ECS that changes something. request is what plans show of it.
func (s *session) change(ctx context.Context, c outside.Call, request map[string]any, q query, into any) error {
	b, err := s.begin(ctx)
	if err != nil {
		return err
	}
	if c.Request, err = json.Marshal(request); err != nil {
		return err
	}
	return s.Server.Do(ctx, c, func(ctx context.Context) error { return s.send(ctx, b, ecs, c.Operation, q, into) })
}

// send sends a request and decodes its answer.
func (s *session) send(ctx context.Context, b *begun, of product, operation string, q query, into any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	parameters := map[string]*string{"RegionId": &b.region}
	for name, value := range q {
		parameters[name] = &value
	}
	var got answer
	client := *b.clients[of] // it changes itself in a call
	_, err := client.CallApiWithCtx(context.WithValue(ctx, answerKey{}, &got), &openapi.Params{
		Action: &operation, Version: dara.String(versions[of]), Protocol: dara.String("HTTPS"), Pathname: dara.String("/"), Method: dara.String(http.MethodPost),
		AuthType: dara.String("AK"), Style: dara.String("RPC"), ReqBodyType: dara.String("formData"), BodyType: dara.String("binary"),
	}, &openapi.OpenApiRequest{Query: parameters}, &dara.RuntimeOptions{})
	if err = s.classify(ctx, of, operation, got, err); err != nil || into == nil {
		return err
	}
	if err = json.Unmarshal(got.body, into); err != nil {
		return fmt.Errorf("decoding the answer to %s: %w", operation, err)
	}
	return nil
}

// numbered reads all pages of a list whose pages have numbers. items returns those of a page, and how many there are on all.
func numbered[Page, Item any](ctx context.Context, s *session, operation string, q query, items func(Page) ([]Item, int)) (all []Item, err error) {
	for number := 1; ; number++ {
		var page Page
		if err := s.read(ctx, vpc, operation, q.with("PageSize", strconv.Itoa(vpcPage)).with("PageNumber", strconv.Itoa(number)), &page); err != nil {
			return nil, err
		}
		list, total := items(page)
		if all = append(all, list...); len(list) == 0 || len(all) >= total {
			return all, nil
		}
		if err := outside.CheckList(operation, number, len(all)); err != nil {
			return nil, err
		}
	}
}

// chained reads all pages of a list of which each page names the next one. size is 0 for a list that has one of its own.
func chained[Page, Item any](ctx context.Context, s *session, operation string, size int, q query, items func(Page) (list []Item, next string)) (all []Item, err error) {
	if size > 0 {
		q = q.with("MaxResults", strconv.Itoa(size))
	}
	next := ""
	for pages := 1; ; pages++ {
		var page Page
		of := q
		if next != "" {
			of = q.with("NextToken", next)
		}
		if err := s.read(ctx, ecs, operation, of, &page); err != nil {
			return nil, err
		}
		var list []Item
		list, next = items(page)
		if all = append(all, list...); next == "" {
			return all, nil
		}
		if err := outside.CheckList(operation, pages, len(all)); err != nil {
			return nil, err
		}
	}
}

func (s *session) vpcs(ctx context.Context, id string) ([]vpcItem, error) {
	type page struct {
		TotalCount int
		Vpcs       struct{ Vpc []vpcItem }
	}
	return numbered(ctx, s, "DescribeVpcs", query{"VpcId": id}, func(p page) ([]vpcItem, int) { return p.Vpcs.Vpc, p.TotalCount })
}

func (s *session) vSwitches(ctx context.Context, vpcID string) ([]vSwitchItem, error) {
	type page struct {
		TotalCount int
		VSwitches  struct{ VSwitch []vSwitchItem }
	}
	return numbered(ctx, s, "DescribeVSwitches", query{"VpcId": vpcID}, func(p page) ([]vSwitchItem, int) { return p.VSwitches.VSwitch, p.TotalCount })
}

func (s *session) securityGroups(ctx context.Context, vpcID string) ([]groupItem, error) {
	type page struct {
		NextToken      string
		SecurityGroups struct{ SecurityGroup []groupItem }
	}
	return chained(ctx, s, "DescribeSecurityGroups", ecsPage, query{"VpcId": vpcID}, func(p page) ([]groupItem, string) { return p.SecurityGroups.SecurityGroup, p.NextToken })
}

func (s *session) instanceTypes(ctx context.Context) ([]typeItem, error) {
	type page struct {
		NextToken     string
		InstanceTypes struct{ InstanceType []typeItem }
	}
	return chained(ctx, s, "DescribeInstanceTypes", ecsPage, query{}, func(p page) ([]typeItem, string) { return p.InstanceTypes.InstanceType, p.NextToken })
}

// interfaces are those that q selects.
func (s *session) interfaces(ctx context.Context, q query) ([]interfaceItem, error) {
	type page struct {
		NextToken            string
		NetworkInterfaceSets struct{ NetworkInterfaceSet []interfaceItem }
	}
	return chained(ctx, s, "DescribeNetworkInterfaces", interfacePage, q, func(p page) ([]interfaceItem, string) {
		return p.NetworkInterfaceSets.NetworkInterfaceSet, p.NextToken
	})
}

// interfaceOf is an interface, false if it does not exist.
func (s *session) interfaceOf(ctx context.Context, id string) (interfaceItem, bool, error) {
	list, err := s.interfaces(ctx, query{}.list("NetworkInterfaceId", []string{id}))
	for _, n := range list {
		if n.NetworkInterfaceID == id {
			return n, true, nil
		}
	}
	return interfaceItem{}, false, err
}

// interfacesByInstance are those of instances, each read alone.
func (s *session) interfacesByInstance(ctx context.Context, ids []string) (all []interfaceItem, err error) {
	for _, id := range ids {
		of, err := s.interfaces(ctx, query{"InstanceId": id})
		if err != nil {
			return nil, err
		}
		all = append(all, of...)
	}
	return all, nil
}

// interfacesByID are those with ids, as far as they exist.
func (s *session) interfacesByID(ctx context.Context, ids []string) (all []interfaceItem, err error) {
	for some := range slices.Chunk(ids, maxIDs) {
		of, err := s.interfaces(ctx, query{}.list("NetworkInterfaceId", some))
		if err != nil {
			return nil, err
		}
		all = append(all, of...)
	}
	return all, nil
}

// tagged are the ids of the instances that have all tags.
func (s *session) tagged(ctx context.Context, tags map[string]string) ([]string, error) {
	type page struct {
		NextToken    string
		TagResources struct{ TagResource []taggedItem }
	}
	list, err := chained(ctx, s, "ListTagResources", 0, query{"ResourceType": "instance"}.tags(tags), func(p page) ([]taggedItem, string) {
		return p.TagResources.TagResource, p.NextToken
	})
	found := map[string]bool{}
	for _, of := range list { // an instance is listed once for each of the tags
		found[of.ResourceID] = true
	}
	return slices.Sorted(maps.Keys(found)), err
}

// interfacesOfInstances are the ids of the interfaces of instances.
func (s *session) interfacesOfInstances(ctx context.Context, ids []string) (interfaces []string, err error) {
	type page struct {
		NextToken string
		Instances struct{ Instance []instanceItem }
	}
	for some := range slices.Chunk(ids, maxIDs) {
		text, err := json.Marshal(some)
		if err != nil {
			return nil, err
		}
		list, err := chained(ctx, s, "DescribeInstances", ecsPage, query{"InstanceIds": string(text)}, func(p page) ([]instanceItem, string) {
			return p.Instances.Instance, p.NextToken
		})
		if err != nil {
			return nil, err
		}
		for _, i := range list {
			for _, n := range i.NetworkInterfaces.NetworkInterface {
				interfaces = append(interfaces, n.NetworkInterfaceID)
			}
		}
	}
	if len(ids) > 0 && len(interfaces) == 0 { // ECS has an empty list for who may not read
		return nil, fmt.Errorf("DescribeInstances: none of %d instances with the tags of --instance-tags-filter is listed: allow the operator's RAM identity ecs:DescribeInstances", len(ids))
	}
	return interfaces, nil
}

// created is an interface that was created.
type created struct {
	NetworkInterfaceID string `json:"NetworkInterfaceId"`
}

// order is an interface to create.
type order struct {
	instance, vSwitch string
	groups            []string
	secondary         int // addresses
	index             int
	token             string // by which ECS knows a request that it has carried out
}

func (s *session) create(ctx context.Context, o order) (string, error) {
	q := query{"VSwitchId": o.vSwitch, "ClientToken": o.token, "Description": "Cilium-CNI (" + o.instance + ")"}.
		list("SecurityGroupIds", o.groups).tags(map[string]string{indexTag: strconv.Itoa(o.index)})
	if o.secondary > 0 {
		q["SecondaryPrivateIpAddressCount"] = strconv.Itoa(o.secondary)
	}
	var made created
	err := s.change(ctx, outside.Call{Verb: "create", Operation: opCreate, Resource: "interfaces", Name: o.instance},
		map[string]any{"vSwitch": o.vSwitch, "securityGroups": o.groups, "secondaryAddresses": o.secondary, "index": o.index}, q, &made)
	if err == nil && made.NetworkInterfaceID == "" {
		return "", fmt.Errorf("%s: ECS does not say which interface it has created", opCreate)
	}
	return made.NetworkInterfaceID, err
}

func (s *session) attach(ctx context.Context, id, instance string) error {
	return s.change(ctx, outside.Call{Verb: "attach", Operation: opAttach, Resource: "interfaces", Name: id}, map[string]any{"instance": instance},
		query{"NetworkInterfaceId": id, "InstanceId": instance}, nil)
}

// remove deletes an interface. One that does not exist is no error.
func (s *session) remove(ctx context.Context, id string) error {
	err := s.change(ctx, outside.Call{Verb: "delete", Operation: opDelete, Resource: "interfaces", Name: id}, nil, query{"NetworkInterfaceId": id}, nil)
	if codeOf(err) == codeNoInterface {
		return nil
	}
	return err
}

// assign returns the addresses that were assigned.
func (s *session) assign(ctx context.Context, id string, count int, token string) ([]string, error) {
	var answer struct {
		AssignedPrivateIPAddressesSet struct {
			PrivateIPSet struct {
				PrivateIPAddress []string `json:"PrivateIpAddress"`
			} `json:"PrivateIpSet"`
		} `json:"AssignedPrivateIpAddressesSet"`
	}
	err := s.change(ctx, outside.Call{Verb: "assign", Operation: opAssign, Resource: "addresses", Name: id}, map[string]any{"count": count},
		query{"NetworkInterfaceId": id, "SecondaryPrivateIpAddressCount": strconv.Itoa(count), "ClientToken": token}, &answer)
	return answer.AssignedPrivateIPAddressesSet.PrivateIPSet.PrivateIPAddress, err
}

func (s *session) unassign(ctx context.Context, id string, addresses []string) error {
	return s.change(ctx, outside.Call{Verb: "unassign", Operation: opUnassign, Resource: "addresses", Name: id}, map[string]any{"addresses": addresses},
		query{"NetworkInterfaceId": id}.list("PrivateIpAddress", addresses), nil)
}
