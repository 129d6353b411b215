// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package aws

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// eachInstance has those of a region with tags handled, page by page.
func (s *session) eachInstance(ctx context.Context, region string, tags map[string]string, handle func(*types.Instance) error) error {
	return eachPage(ctx, s, region, "DescribeInstances", func(ctx context.Context, c *ec2.Client, token *string) (p page[types.Reservation], err error) {
		out, err := c.DescribeInstances(ctx, &ec2.DescribeInstancesInput{Filters: tagFilters(tags), MaxResults: s.pageSize(), NextToken: token})
		if err != nil {
			return p, err
		}
		return page[types.Reservation]{out.Reservations, out.NextToken}, nil
	}, func(all []types.Reservation) error {
		for _, r := range all {
			for i := range r.Instances {
				if err := handle(&r.Instances[i]); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// eachInterface has those of a region that match all filters handled, page by page.
func (s *session) eachInterface(ctx context.Context, region string, filters []types.Filter, handle func(*types.NetworkInterface) error) error {
	return eachPage(ctx, s, region, "DescribeNetworkInterfaces", func(ctx context.Context, c *ec2.Client, token *string) (p page[types.NetworkInterface], err error) {
		out, err := c.DescribeNetworkInterfaces(ctx, &ec2.DescribeNetworkInterfacesInput{Filters: filters, MaxResults: s.pageSize(), NextToken: token})
		if err != nil {
			return p, err
		}
		return page[types.NetworkInterface]{out.NetworkInterfaces, out.NextToken}, nil
	}, func(all []types.NetworkInterface) error {
		for i := range all {
			if err := handle(&all[i]); err != nil {
				return err
			}
		}
		return nil
	})
}
