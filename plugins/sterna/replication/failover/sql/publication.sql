-- What a region's catalog publishes once it is the primary: made in every region beforehand, so that a promotion changes rights alone.
CREATE PUBLICATION sterna FOR TABLE refs2, objs2, sterna_epoch;
