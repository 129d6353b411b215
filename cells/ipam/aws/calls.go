// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package aws

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"

	"github.com/skep-operator/skep/resources/outside"
)

// callTimeout bounds a call to EC2, with its credentials.
const callTimeout = time.Minute

// read makes a call that changes nothing.
func read(ctx context.Context, s *session, operation string, call func(context.Context, *ec2.Client) error) error {
	b, err := s.begin(ctx)
	if err != nil {
		return err
	}
	return s.readWith(ctx, b.client, operation, call)
}

func (s *session) readWith(ctx context.Context, client *ec2.Client, operation string, call func(context.Context, *ec2.Client) error) error {
	return s.EC2.ReadOperation(ctx, operation, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		return s.classify(call(ctx, client))
	})
}

// change makes a call that changes something. request is what plans show of it.
func change(ctx context.Context, s *session, c outside.Call, request map[string]any, call func(context.Context, *begun) error) error {
	b, err := s.begin(ctx)
	if err != nil {
		return err
	}
	if c.Request, err = json.Marshal(request); err != nil {
		return err
	}
	return s.EC2.Do(ctx, c, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		return s.classify(call(ctx, b))
	})
}

// classify makes a pause of the error of a call that was refused for its rate: EC2 does not say how long it wants.
func (s *session) classify(err error) error {
	if err == nil {
		s.throttle.Passed()
		return nil
	}
	if _, throttled := retry.DefaultThrottleErrorCodes[codeOf(err)]; !throttled {
		return err
	}
	return s.throttle.Refused(err)
}

// Codes of EC2's errors.
const (
	codeDenied          = "UnauthorizedOperation"
	codeNoPrefixes      = "InsufficientCidrBlocks"
	codeInvalid         = "InvalidParameterValue"
	codeAttachmentLimit = "AttachmentLimitExceeded"
	codeNoInstance      = "InvalidInstanceID.NotFound"
	codeNoInterface     = "InvalidNetworkInterfaceID.NotFound"
	codeNoAttachment    = "InvalidAttachmentID.NotFound"
	codeInUse           = "InvalidNetworkInterface.InUse"
	codeAssociated      = "Resource.AlreadyAssociated"
)

func codeOf(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}

// isError reports whether EC2 answers with a code and a text.
func isError(err error, code, text string) bool {
	var api smithy.APIError
	return errors.As(err, &api) && api.ErrorCode() == code && strings.Contains(api.ErrorMessage(), text)
}

func isDenied(err error) bool { return codeOf(err) == codeDenied }

// lacksPrefixes reports whether a subnet has no room for a prefix.
func lacksPrefixes(err error) bool {
	return codeOf(err) == codeNoPrefixes || isError(err, codeInvalid, "There aren't sufficient free Ipv4 addresses or prefixes")
}

// Operations without which there is less, and not nothing.
const (
	opTypes  = "DescribeInstanceTypes"
	opTables = "DescribeRouteTables"
)

// Bounds of EC2.
const (
	maxResults      = 1000
	maxTypeResults  = 100
	maxTableResults = 100
	maxFilterValues = 200
)

// page is one page of a list.
type page[T any] struct {
	items []T
	next  *string
}

// list reads all pages, each of which passes the door.
func list[T any](ctx context.Context, s *session, operation string, get func(context.Context, *ec2.Client, *string) (page[T], error)) (all []T, err error) {
	err = eachPage(ctx, s, "", operation, get, func(items []T) error {
		all = append(all, items...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// eachPage reads all pages in a region, and has one at a time handled; "" is the region of the operator.
func eachPage[T any](ctx context.Context, s *session, region, operation string, get func(context.Context, *ec2.Client, *string) (page[T], error), handle func([]T) error) error {
	b, err := s.begin(ctx)
	if err != nil {
		return err
	}
	client, err := b.in(region)
	if err != nil {
		return err
	}
	var token *string
	items := 0
	for pages := 1; ; pages++ {
		var p page[T]
		if err := s.readWith(ctx, client, operation, func(ctx context.Context, c *ec2.Client) (err error) {
			p, err = get(ctx, c, token)
			return err
		}); err != nil {
			return err
		}
		items += len(p.items)
		if err := handle(p.items); err != nil {
			return err
		}
		if sdk.ToString(p.next) == "" {
			return nil
		}
		if err := outside.CheckList(operation, pages, items); err != nil {
			return err
		}
		token = p.next
	}
}

// pageSize is that of all lists. None is asked for without pages: EC2 refuses that to accounts that have much, and allows fewer of
// such calls to others.
func (s *session) pageSize() *int32 {
	if n := s.Config.AWSMaxResultsPerCall; n > 0 {
		return sdk.Int32(int32(n)) //nolint:gosec // it is at most a thousand
	}
	return sdk.Int32(maxResults)
}

func (s *session) vpcs(ctx context.Context) ([]types.Vpc, error) {
	return list(ctx, s, "DescribeVpcs", func(ctx context.Context, c *ec2.Client, token *string) (p page[types.Vpc], err error) {
		out, err := c.DescribeVpcs(ctx, &ec2.DescribeVpcsInput{MaxResults: s.pageSize(), NextToken: token})
		if err != nil {
			return p, err
		}
		return page[types.Vpc]{out.Vpcs, out.NextToken}, nil
	})
}

func (s *session) subnets(ctx context.Context) ([]types.Subnet, error) {
	return list(ctx, s, "DescribeSubnets", func(ctx context.Context, c *ec2.Client, token *string) (p page[types.Subnet], err error) {
		out, err := c.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{MaxResults: s.pageSize(), NextToken: token})
		if err != nil {
			return p, err
		}
		return page[types.Subnet]{out.Subnets, out.NextToken}, nil
	})
}

func (s *session) securityGroups(ctx context.Context) ([]types.SecurityGroup, error) {
	return list(ctx, s, "DescribeSecurityGroups", func(ctx context.Context, c *ec2.Client, token *string) (p page[types.SecurityGroup], err error) {
		out, err := c.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{MaxResults: s.pageSize(), NextToken: token})
		if err != nil {
			return p, err
		}
		return page[types.SecurityGroup]{out.SecurityGroups, out.NextToken}, nil
	})
}

// routeTables are all of the account: a VPC has few.
func (s *session) routeTables(ctx context.Context) ([]types.RouteTable, error) {
	return list(ctx, s, opTables, func(ctx context.Context, c *ec2.Client, token *string) (p page[types.RouteTable], err error) {
		out, err := c.DescribeRouteTables(ctx, &ec2.DescribeRouteTablesInput{MaxResults: sdk.Int32(min(*s.pageSize(), maxTableResults)), NextToken: token})
		if err != nil {
			return p, err
		}
		return page[types.RouteTable]{out.RouteTables, out.NextToken}, nil
	})
}

// instanceTypes are those of the names, or all. A filter has those that do not exist be no error.
func (s *session) instanceTypes(ctx context.Context, names ...string) ([]types.InstanceTypeInfo, error) {
	in := ec2.DescribeInstanceTypesInput{MaxResults: sdk.Int32(min(*s.pageSize(), maxTypeResults))}
	if len(names) > 0 {
		in.Filters = []types.Filter{filter("instance-type", names...)}
	}
	return list(ctx, s, opTypes, func(ctx context.Context, c *ec2.Client, token *string) (p page[types.InstanceTypeInfo], err error) {
		in.NextToken = token
		out, err := c.DescribeInstanceTypes(ctx, &in)
		if err != nil {
			return p, err
		}
		return page[types.InstanceTypeInfo]{out.InstanceTypes, out.NextToken}, nil
	})
}

// instances are the ids of those with tags.
func (s *session) instances(ctx context.Context, tags map[string]string) (ids []string, err error) {
	found, err := s.describeInstances(ctx, "", tags)
	for _, i := range found {
		if id := sdk.ToString(i.InstanceId); id != "" {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, err
}

// describeInstances are those of a region with tags.
func (s *session) describeInstances(ctx context.Context, region string, tags map[string]string) (all []types.Instance, err error) {
	err = s.eachInstance(ctx, region, tags, func(i *types.Instance) error {
		all = append(all, *i)
		return nil
	})
	return all, err
}

// interfaces are those that match all filters.
func (s *session) interfaces(ctx context.Context, filters ...types.Filter) (all []types.NetworkInterface, err error) {
	err = s.eachInterface(ctx, "", filters, func(i *types.NetworkInterface) error {
		all = append(all, *i)
		return nil
	})
	return all, err
}

// interfacesOf are those of instances.
func (s *session) interfacesOf(ctx context.Context, ids []string) (all []types.NetworkInterface, err error) {
	for some := range slices.Chunk(ids, maxFilterValues) {
		part, err := s.interfaces(ctx, filter("attachment.instance-id", some...))
		if err != nil {
			return nil, err
		}
		all = append(all, part...)
	}
	return all, nil
}

// unattached are up to count interfaces, or a few more, that have tags and are not attached.
func (s *session) unattached(ctx context.Context, tags map[string]string, count int) (ids []string, err error) {
	var token *string
	for pages := 1; len(ids) < count; pages++ {
		var out *ec2.DescribeNetworkInterfacesOutput
		if err := read(ctx, s, "DescribeNetworkInterfaces", func(ctx context.Context, c *ec2.Client) (err error) {
			out, err = c.DescribeNetworkInterfaces(ctx, &ec2.DescribeNetworkInterfacesInput{
				Filters: append(tagFilters(tags), filter("status", "available")), MaxResults: sdk.Int32(int32(count)), NextToken: token, //nolint:gosec // it is 25
			})
			return err
		}); err != nil {
			return nil, err
		}
		for _, i := range out.NetworkInterfaces {
			ids = append(ids, sdk.ToString(i.NetworkInterfaceId))
		}
		if token = out.NextToken; sdk.ToString(token) == "" {
			break
		}
		if err := outside.CheckList("DescribeNetworkInterfaces", pages, len(ids)); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// clusterOf is the EKS cluster of an instance, "" for none.
func (s *session) clusterOf(ctx context.Context, client *ec2.Client, instance string) (name string, err error) {
	err = s.readWith(ctx, client, "DescribeTags", func(ctx context.Context, c *ec2.Client) error {
		out, err := c.DescribeTags(ctx, &ec2.DescribeTagsInput{MaxResults: s.pageSize(), Filters: []types.Filter{
			filter("resource-type", "instance"), filter("resource-id", instance), filter("key", eksTag),
		}})
		if err == nil && len(out.Tags) > 0 {
			name = sdk.ToString(out.Tags[0].Value)
		}
		return err
	})
	return name, err
}

func (s *session) assign(ctx context.Context, id string, o order) (out *ec2.AssignPrivateIpAddressesOutput, err error) {
	in := &ec2.AssignPrivateIpAddressesInput{NetworkInterfaceId: &id}
	in.SecondaryPrivateIpAddressCount, in.Ipv4PrefixCount = o.counts()
	err = change(ctx, s, outside.Call{Verb: "assign", Operation: "AssignPrivateIpAddresses", Resource: "addresses", Name: id}, o.request(),
		func(ctx context.Context, b *begun) (err error) {
			out, err = b.client.AssignPrivateIpAddresses(ctx, in)
			return err
		})
	return out, err
}

// counts are what EC2 is asked for: one of the two.
func (o order) counts() (addresses, prefixes *int32) {
	if o.prefixes > 0 {
		return nil, sdk.Int32(int32(o.prefixes)) //nolint:gosec // an interface has a handful
	}
	return sdk.Int32(int32(o.addresses)), nil //nolint:gosec // an interface has a handful
}

func (o order) request() map[string]any {
	if o.prefixes > 0 {
		return map[string]any{"prefixes": o.prefixes}
	}
	return map[string]any{"addresses": o.addresses}
}

// holding are addresses or prefixes of an interface, of which EC2 takes one kind in a call.
type holding struct{ addresses, prefixes []string }

func (h holding) len() int { return len(h.addresses) + len(h.prefixes) }

func (s *session) unassign(ctx context.Context, id string, these holding) error {
	c, request := outside.Call{Verb: "unassign", Operation: "UnassignPrivateIpAddresses", Resource: "addresses", Name: id}, map[string]any{"addresses": these.addresses}
	if len(these.prefixes) > 0 {
		request = map[string]any{"prefixes": these.prefixes}
	}
	return change(ctx, s, c, request, func(ctx context.Context, b *begun) error {
		_, err := b.client.UnassignPrivateIpAddresses(ctx, &ec2.UnassignPrivateIpAddressesInput{
			NetworkInterfaceId: &id, PrivateIpAddresses: these.addresses, Ipv4Prefixes: these.prefixes,
		})
		return err
	})
}

// elasticAddresses are those with all tags. EC2 has no pages of them.
func (s *session) elasticAddresses(ctx context.Context, tags map[string]string) (all []types.Address, err error) {
	err = read(ctx, s, "DescribeAddresses", func(ctx context.Context, c *ec2.Client) error {
		out, err := c.DescribeAddresses(ctx, &ec2.DescribeAddressesInput{Filters: tagFilters(tags)})
		if err == nil {
			all = out.Addresses
		}
		return err
	})
	return all, err
}

// associate gives an interface an elastic address. One that is associated stays where it is, and so does that of the interface.
func (s *session) associate(ctx context.Context, allocation, id string) error {
	return change(ctx, s, outside.Call{Verb: "associate", Operation: "AssociateAddress", Resource: "interfaces", Name: id}, map[string]any{"allocation": allocation},
		func(ctx context.Context, b *begun) error {
			_, err := b.client.AssociateAddress(ctx, &ec2.AssociateAddressInput{AllocationId: &allocation, NetworkInterfaceId: &id, AllowReassociation: sdk.Bool(false)})
			return err
		})
}

func (s *session) create(ctx context.Context, instance, subnet string, groups []string, o order) (made *types.NetworkInterface, err error) {
	in := &ec2.CreateNetworkInterfaceInput{SubnetId: &subnet, Groups: groups, Description: sdk.String("Cilium-CNI (" + instance + ")")}
	in.SecondaryPrivateIpAddressCount, in.Ipv4PrefixCount = o.counts()
	request := o.request()
	if o.ipv6 {
		in.Ipv6PrefixCount, request["ipv6Prefixes"] = sdk.Int32(1), 1
	}
	request["subnet"], request["securityGroups"] = subnet, groups
	err = change(ctx, s, outside.Call{Verb: "create", Operation: "CreateNetworkInterface", Resource: "interfaces", Name: instance}, request,
		func(ctx context.Context, b *begun) error {
			in.TagSpecifications = []types.TagSpecification{{ResourceType: types.ResourceTypeNetworkInterface, Tags: tagList(b.tagsOf(s.Config))}}
			out, err := b.client.CreateNetworkInterface(ctx, in)
			switch {
			case err != nil:
				return err
			case out.NetworkInterface == nil || sdk.ToString(out.NetworkInterface.NetworkInterfaceId) == "":
				return errors.New("EC2 does not say which interface it has created")
			}
			made = out.NetworkInterface
			return nil
		})
	return made, err
}

func (s *session) attach(ctx context.Context, id, instance string, index int) (attachment string, err error) {
	err = change(ctx, s, outside.Call{Verb: "attach", Operation: "AttachNetworkInterface", Resource: "interfaces", Name: id}, map[string]any{"instance": instance, "deviceIndex": index},
		func(ctx context.Context, b *begun) error {
			out, err := b.client.AttachNetworkInterface(ctx, &ec2.AttachNetworkInterfaceInput{
				NetworkInterfaceId: &id, InstanceId: &instance, NetworkCardIndex: sdk.Int32(0), DeviceIndex: sdk.Int32(int32(index)), //nolint:gosec // of an interface
			})
			if err == nil {
				attachment = sdk.ToString(out.AttachmentId)
			}
			return err
		})
	return attachment, err
}

// deleteWithInstance has an interface be deleted when its instance is terminated.
func (s *session) deleteWithInstance(ctx context.Context, id, attachment string) error {
	return change(ctx, s, outside.Call{Verb: "modify", Operation: "ModifyNetworkInterface", Resource: "interfaces", Name: id}, map[string]any{"deleteOnTermination": true},
		func(ctx context.Context, b *begun) error {
			_, err := b.client.ModifyNetworkInterfaceAttribute(ctx, &ec2.ModifyNetworkInterfaceAttributeInput{
				NetworkInterfaceId: &id, Attachment: &types.NetworkInterfaceAttachmentChanges{AttachmentId: &attachment, DeleteOnTermination: sdk.Bool(true)},
			})
			return err
		})
}

func (s *session) remove(ctx context.Context, id string) error {
	err := change(ctx, s, outside.Call{Verb: "delete", Operation: "DeleteNetworkInterface", Resource: "interfaces", Name: id}, nil,
		func(ctx context.Context, b *begun) error {
			_, err := b.client.DeleteNetworkInterface(ctx, &ec2.DeleteNetworkInterfaceInput{NetworkInterfaceId: &id})
			return err
		})
	if codeOf(err) == codeNoInterface {
		return nil
	}
	return err
}

func filter(name string, values ...string) types.Filter {
	return types.Filter{Name: &name, Values: values}
}

func tagFilters(tags map[string]string) (filters []types.Filter) {
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		filters = append(filters, filter("tag:"+key, tags[key]))
	}
	return filters
}

func tagList(tags map[string]string) (list []types.Tag) {
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		list = append(list, types.Tag{Key: sdk.String(key), Value: sdk.String(tags[key])})
	}
	return list
}

func tagMap(list []types.Tag) map[string]string {
	if len(list) == 0 {
		return nil
	}
	tags := make(map[string]string, len(list))
	for _, t := range list {
		tags[sdk.ToString(t.Key)] = sdk.ToString(t.Value)
	}
	return tags
}
