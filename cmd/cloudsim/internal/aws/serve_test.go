// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package aws

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// cli runs AWS' own command line tool against a served cloud.
type cli struct {
	t            *testing.T
	env, options []string
}

// start serves a cloud, and returns the tool, or skips the test where there is none.
func start(t *testing.T, args ...string) *cli {
	t.Helper()
	path, err := exec.LookPath("aws")
	if err != nil {
		t.Skip("there is no program aws in PATH: the protocol is not proved by a second client; install awscli")
	}
	if text, err := exec.Command(path, "--version").CombinedOutput(); err != nil {
		t.Skipf("aws --version fails, so that the protocol is not proved by a second client: %s", text)
	}
	reader, writer := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		err := Serve(ctx, writer, append([]string{"-listen=127.0.0.1:0", "-metadata=127.0.0.1:0"}, args...))
		writer.CloseWithError(err)
		ended <- err
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	c := &cli{t: t, env: []string{"AWS_DEFAULT_REGION=eu-west-1", "AWS_CONFIG_FILE=" + os.DevNull, "AWS_SHARED_CREDENTIALS_FILE=" + os.DevNull, "AWS_MAX_ATTEMPTS=1",
		"AWS_METADATA_SERVICE_TIMEOUT=60"}}
	for range 2 {
		var name string
		if _, err := fmt.Fscanf(reader, "export %s\n", &name); err != nil {
			t.Fatal(err)
		}
		c.env = append(c.env, name)
		if endpoint, is := strings.CutPrefix(name, "AWS_ENDPOINT_URL_EC2="); is {
			c.options = append(c.options, "--endpoint-url="+endpoint) // before 2.13 it does not read the variable
		}
	}
	return c
}

// run calls an operation of EC2, and returns its output and what it says of an error.
func (c *cli) run(args ...string) (out map[string]any, failure string) {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), "aws", slices.Concat([]string{"ec2", "--output=json"}, c.options, args)...)
	cmd.Env = append(os.Environ(), c.env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, strings.TrimSpace(stderr.String())
	}
	if stdout.Len() > 0 {
		if err := json.Unmarshal(stdout.Bytes(), &out); err != nil {
			c.t.Fatalf("%v: %s", err, stdout.String())
		}
	}
	return out, ""
}

// value runs an operation and returns a value of its output.
func (c *cli) value(path string, args ...string) any {
	c.t.Helper()
	out, failure := c.run(args...)
	if failure != "" {
		c.t.Fatalf("%q: %s", args, failure)
	}
	var v any = out
	for part := range strings.SplitSeq(path, ".") {
		var index int
		if list, is := v.([]any); is {
			if _, err := fmt.Sscan(part, &index); err != nil || index >= len(list) {
				c.t.Fatalf("%q: there is no %s in %v", args, path, out)
			}
			v = list[index]
			continue
		}
		of, _ := v.(map[string]any)
		if v = of[part]; v == nil {
			c.t.Fatalf("%q: there is no %s in %v", args, path, out)
		}
	}
	return v
}

func (c *cli) want(want any, path string, args ...string) {
	c.t.Helper()
	if got := c.value(path, args...); fmt.Sprint(got) != fmt.Sprint(want) {
		c.t.Errorf("%q: %s is %v, want %v", args, path, got, want)
	}
}

func (c *cli) refused(code string, args ...string) {
	c.t.Helper()
	if _, failure := c.run(args...); !strings.Contains(failure, "("+code+")") {
		c.t.Errorf("%q: %q, want %s", args, failure, code)
	}
}

// Every operation that IPAM uses is understood by a second client, which gets its credentials of the metadata service. Each
// call of it is a process that takes a second.
func TestSecondClient(t *testing.T) {
	c := start(t, "-instances=7")
	c.want("100.64.0.0/16", "Vpcs.0.CidrBlockAssociationSet.1.CidrBlock", "describe-vpcs")
	c.want(65536-5-7, "Subnets.0.AvailableIpAddressCount", "describe-subnets", "--filters", "Name=vpc-id,Values=vpc-1")
	c.want("sg-1", "SecurityGroups.0.GroupId", "describe-security-groups")
	c.want(3, "InstanceTypes.4.NetworkInfo.MaximumNetworkInterfaces", "describe-instance-types")
	c.want("running", "Reservations.0.Instances.0.State.Name", "describe-instances")
	c.want("i-6", "NetworkInterfaces.6.Attachment.InstanceId", "describe-network-interfaces", "--page-size=5")

	id := c.value("NetworkInterface.NetworkInterfaceId", "create-network-interface", "--subnet-id=subnet-a", "--groups=sg-1", "--description=one two",
		"--secondary-private-ip-address-count=2", "--tag-specifications", "ResourceType=network-interface,Tags=[{Key=team,Value=net}]").(string)
	c.refused("InvalidParameterValue", "attach-network-interface", "--network-interface-id", id, "--instance-id=i-0", "--device-index=0")
	attachment := c.value("AttachmentId", "attach-network-interface", "--network-interface-id", id, "--instance-id=i-0", "--device-index=1").(string)
	c.done("modify-network-interface-attribute", "--network-interface-id", id, "--attachment", "AttachmentId="+attachment+",DeleteOnTermination=true")
	second := c.value("AssignedPrivateIpAddresses.1.PrivateIpAddress", "assign-private-ip-addresses", "--network-interface-id", id, "--secondary-private-ip-address-count=2").(string)
	prefix := c.value("AssignedIpv4Prefixes.0.Ipv4Prefix", "assign-private-ip-addresses", "--network-interface-id", id, "--ipv4-prefix-count=1").(string)
	c.done("unassign-private-ip-addresses", "--network-interface-id", id, "--private-ip-addresses", second)
	shown := fmt.Sprint(c.value("NetworkInterfaces.0", "describe-network-interfaces", "--network-interface-ids", id))
	for _, part := range []string{"one two", "team", "in-use", "DeleteOnTermination:true", prefix} {
		if !strings.Contains(shown, part) {
			t.Errorf("%s does not show %q", shown, part)
		}
	}
	if strings.Contains(shown, second+" ") || strings.Contains(shown, second+"]") {
		t.Errorf("%s shows %s, which was unassigned", shown, second)
	}
	c.refused("InvalidNetworkInterfaceID.NotFound", "delete-network-interface", "--network-interface-id=eni-0")
	c.refused("InvalidAction", "describe-volumes")
}

// done runs an operation that has no output.
func (c *cli) done(args ...string) {
	c.t.Helper()
	if _, failure := c.run(args...); failure != "" {
		c.t.Errorf("%q: %s", args, failure)
	}
}
